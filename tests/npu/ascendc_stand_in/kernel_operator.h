// A stand-in for the part of Ascend C that gallery/add_custom uses, for tests alone: queues of
// buffers, copies and a sum, run by the tests' device one block after the other. It shows a
// kernel's logic: tiling, tails, which buffer is used when. It is no Ascend C compiler, and knows
// neither the hardware's timing nor its arithmetic.
//
// A buffer is used in one order only: allocated, written, queued, dequeued, read, freed. Whatever
// else is done with one, or beside a tensor, ends the process with a line that says so.
#pragma once

#include <device.h>
#include <opsmith/kernel.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#define __aicore__
#define __global__
#define __gm__
using GM_ADDR = uint8_t*;
using half = opsmith::half;

namespace stand_in {

inline thread_local int64_t block = 0;
inline thread_local size_t used = 0;  // of the core's memory

[[noreturn]] inline void die(const char* what) {
  std::fprintf(stderr, "Ascend C stand-in: %s\n", what);
  std::abort();
}
inline void require(bool holds, const char* what) {
  if (!holds) die(what);
}

enum class State { free, allocated, queued, dequeued };

struct Buffer {
  std::vector<uint8_t> bytes;
  State state = State::free;
};

inline GM_ADDR behind(device::Core core, GM_ADDR address) { return core.at(address); }
template <typename T>
T behind(device::Core, T value) {
  return value;
}

// kernel<<<blocks, nullptr, stream>>>(arguments...)
template <typename... Parameters, typename... Arguments>
void launch(void (*kernel)(Parameters...), uint32_t blocks, void* stream, Arguments... arguments) {
  require(blocks > 0, "a launch of no blocks");
  device::launch(stream, [=](device::Core core) {
    for (block = 0; block < blocks; ++block) {
      used = 0;
      kernel(behind(core, static_cast<Parameters>(arguments))...);
    }
  });
}

}  // namespace stand_in

namespace AscendC {

inline int64_t GetBlockIdx() { return stand_in::block; }

struct DataCopyExtParams {
  uint16_t blockCount;
  uint32_t blockLen;
  uint32_t srcStride, dstStride, rsv;
};
template <typename T>
struct DataCopyPadExtParams {
  bool isPad;
  uint8_t leftPadding, rightPadding;
  T paddingValue;
};

template <typename T>
class GlobalTensor {
 public:
  void SetGlobalBuffer(T* data, uint64_t count) {
    data_ = data;
    count_ = count;
  }
  GlobalTensor operator[](uint64_t at) const {
    stand_in::require(at < count_, "an offset beside global memory");
    GlobalTensor rest;
    rest.data_ = data_ + at;
    rest.count_ = count_ - at;
    return rest;
  }
  T* Take(uint64_t bytes) const {
    stand_in::require(bytes <= count_ * sizeof(T), "a copy beside global memory");
    return data_;
  }

 private:
  T* data_ = nullptr;
  uint64_t count_ = 0;
};

template <typename T>
struct LocalTensor {
  stand_in::Buffer* buffer = nullptr;

  T* Take(stand_in::State state, uint64_t bytes, const char* what) const {
    stand_in::require(buffer != nullptr && buffer->state == state, what);
    stand_in::require(bytes <= buffer->bytes.size(), "more than a buffer holds");
    return reinterpret_cast<T*>(buffer->bytes.data());
  }
};

enum class TPosition { VECIN, VECOUT };

template <TPosition position, int32_t depth>
class TQue {
 public:
  void Init(int32_t count, uint32_t bytes) {
    stand_in::require(count <= depth, "more buffers than the queue is deep");
    buffers_.assign(static_cast<size_t>(count), {std::vector<uint8_t>(bytes, 0xff)});
  }
  template <typename T>
  LocalTensor<T> AllocTensor() {
    for (stand_in::Buffer& buffer : buffers_) {
      if (buffer.state == stand_in::State::free) {
        buffer.state = stand_in::State::allocated;
        return {&buffer};
      }
    }
    stand_in::die("no buffer is free: the core waits for ever");
  }
  template <typename T>
  void EnQue(const LocalTensor<T>& tensor) {
    stand_in::require(tensor.buffer->state == stand_in::State::allocated, "queued, not allocated");
    tensor.buffer->state = stand_in::State::queued;
    queued_.push_back(tensor.buffer);
  }
  template <typename T>
  LocalTensor<T> DeQue() {
    stand_in::require(!queued_.empty(), "nothing is queued: the core waits for ever");
    stand_in::Buffer* first = queued_.front();
    queued_.erase(queued_.begin());
    first->state = stand_in::State::dequeued;
    return {first};
  }
  template <typename T>
  void FreeTensor(const LocalTensor<T>& tensor) {
    stand_in::require(tensor.buffer->state == stand_in::State::dequeued, "freed, not dequeued");
    tensor.buffer->state = stand_in::State::free;
    std::fill(tensor.buffer->bytes.begin(), tensor.buffer->bytes.end(), uint8_t{0xff});
  }

 private:
  std::vector<stand_in::Buffer> buffers_;
  std::vector<stand_in::Buffer*> queued_;
};

class TPipe {
 public:
  template <TPosition position, int32_t depth>
  void InitBuffer(TQue<position, depth>& queue, int32_t count, uint32_t bytes) {
    stand_in::require(bytes % 32 == 0, "a buffer of no whole blocks of 32 bytes");
    stand_in::used += static_cast<size_t>(count) * bytes;
    stand_in::require(stand_in::used <= 192 * 1024, "more memory than a core has");
    queue.Init(count, bytes);
  }
};

template <typename T>
void DataCopyPad(const LocalTensor<T>& to, const GlobalTensor<T>& from,
                 const DataCopyExtParams& how, const DataCopyPadExtParams<T>&) {
  std::memcpy(to.Take(stand_in::State::allocated, how.blockLen, "copied in, not allocated"),
              from.Take(how.blockLen), how.blockLen);
}
template <typename T>
void DataCopyPad(const GlobalTensor<T>& to, const LocalTensor<T>& from,
                 const DataCopyExtParams& how) {
  std::memcpy(to.Take(how.blockLen),
              from.Take(stand_in::State::dequeued, how.blockLen, "copied out, not dequeued"),
              how.blockLen);
}
template <typename T>
void Add(const LocalTensor<T>& to, const LocalTensor<T>& x, const LocalTensor<T>& y, int32_t size) {
  const uint64_t bytes = static_cast<uint64_t>(size) * sizeof(T);
  const T* a = x.Take(stand_in::State::dequeued, bytes, "computed with, not dequeued");
  const T* b = y.Take(stand_in::State::dequeued, bytes, "computed with, not dequeued");
  T* out = to.Take(stand_in::State::allocated, bytes, "computed into, not allocated");
  for (int32_t i = 0; i < size; ++i) out[i] = static_cast<T>(a[i] + b[i]);
}

}  // namespace AscendC
