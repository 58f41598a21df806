// Compares values with their ranges on the device. A small kernel before the operator's kernel
// checks every value and copies the allowed ones; the operator's kernel reads the copies. A value
// that is not allowed is replaced in the copy, so that the kernel never reads outside its memory,
// and the host need not wait: it learns of the value through memory that the device writes. <op>.h
// lists the checked tensors.
#pragma once

#include <opsmith/cuda.h>
#include <opsmith/detail/constraints.h>
#include <opsmith/detail/sizes.h>

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <optional>
#include <string>

namespace opsmith::detail {

// The first value that was not allowed.
struct Unadmitted {
  int32_t state;  // 0: nothing, 1: a thread is writing, 2: the rest is complete
  int32_t item;
  int64_t index, value, low, high;
  double real;
  bool is_real;  // whether the value is a float
};

// One tensor of indices, and the limits of its values. A run begins at a value of `starts`, whose
// own range is `start_low` to `start_high`, and ends at `high` at the latest. Of rows of `width`
// elements, only the column at `place` holds indices.
struct Looked {
  const void *values, *starts;
  void* admitted;
  int64_t count, low, high, start_low, start_high, width, place;
  uint32_t dtype;
};
template <int N>
struct LookedAt {
  Looked items[N];
};

template <typename T>
__device__ bool is_admitted(const Looked& item, int64_t i, T given) {
  if constexpr (!std::is_integral_v<T>) {
    const double real = static_cast<double>(given);
    return real >= item.low && real <= item.high && real == floor(real);
  } else {
    const int64_t value = static_cast<int64_t>(given);
    if (item.starts == nullptr) return value >= item.low && value <= item.high;
    int64_t start = static_cast<int64_t>(static_cast<const T*>(item.starts)[i]);
    // The copy that the operator's kernel reads instead.
    if (start < item.start_low || start > item.start_high) start = item.start_low;
    return value >= 0 && start <= item.high - value;
  }
}

template <typename T>
__device__ void look(const Looked& item, int32_t number, int64_t row, Unadmitted* found) {
  const int64_t i = row * item.width + item.place;
  const T value = static_cast<const T*>(item.values)[i];
  const bool good = is_admitted<T>(item, i, value);
  static_cast<T*>(item.admitted)[i] = good ? value : static_cast<T>(item.low);
  if (good || atomicCAS(&found->state, 0, 1) != 0) return;
  found->item = number;
  found->index = i;
  found->is_real = !std::is_integral_v<T>;
  found->value = std::is_integral_v<T> ? static_cast<int64_t>(value) : 0;
  found->real = static_cast<double>(value);
  found->low = item.low;
  found->high = item.high;
  __threadfence_system();
  atomicExch(&found->state, 2);
}

template <int N>
__global__ void admit_values(LookedAt<N> all, Unadmitted* found) {
  const Looked& item = all.items[blockIdx.x];
  const auto number = static_cast<int32_t>(blockIdx.x);
  const int64_t step = int64_t{gridDim.y} * blockDim.x;
  // The last blocks take the last values of every tensor: where only these blocks of grids are run,
  // those of the operator's kernel find what they read.
  const int64_t before = (gridDim.y - 1 - blockIdx.y) * int64_t{blockDim.x} + threadIdx.x;
  for (int64_t i = item.count - 1 - before; i >= 0; i -= step) {
    switch (item.dtype) {
#define OPSMITH_LOOK(T)              \
  case dtype_traits<T>::key:         \
    look<T>(item, number, i, found); \
    break;
      OPSMITH_LOOK(int8_t)
      OPSMITH_LOOK(int16_t)
      OPSMITH_LOOK(int32_t)
      OPSMITH_LOOK(int64_t)
      OPSMITH_LOOK(uint8_t)
#ifndef OPSMITH_EXACT  // whose floats have other bits
      OPSMITH_LOOK(half)
      OPSMITH_LOOK(bfloat16)
      OPSMITH_LOOK(float)
      OPSMITH_LOOK(double)
#endif
#undef OPSMITH_LOOK
    }
  }
}

// The place where the device leaves its finding until the host looks.
#ifdef OPSMITH_CUDA_ON_CPU
// This is memory of the call: launches have ended when they return.
class Mailbox {
 public:
  explicit Mailbox(const Context& ctx)
      : box_(ctx.scratch<Unadmitted>(1).data()), stream_(cuda_stream(ctx)) {
    cudaMemsetAsync(box_, 0, sizeof *box_, stream_);
  }
  Unadmitted* on_device() const { return box_; }
  Unadmitted read() const {
    Unadmitted found;
    cudaMemcpyAsync(&found, box_, sizeof found, cudaMemcpyDeviceToHost, stream_);
    return found;
  }
  void clear() const {}

 private:
  Unadmitted* box_;
  cudaStream_t stream_;
};
#else
// Memory of the host that the device writes: the host reads it without waiting.
class Mailbox {
 public:
  explicit Mailbox(const Context& ctx) {
    void* memory = nullptr;
    check_cuda(
        ctx,
        cudaHostAlloc(&memory, sizeof(Unadmitted), cudaHostAllocMapped | cudaHostAllocPortable),
        "cudaHostAlloc");
    std::memset(memory, 0, sizeof(Unadmitted));
    host_ = static_cast<Unadmitted*>(memory);
    check_cuda(ctx, cudaHostGetDevicePointer(&memory, memory, 0), "cudaHostGetDevicePointer");
    device_ = static_cast<Unadmitted*>(memory);
  }
  Unadmitted* on_device() const { return device_; }
  Unadmitted read() const {
    Unadmitted found{};
    if (__atomic_load_n(&host_->state, __ATOMIC_ACQUIRE) == 2) found = *host_;
    return found;
  }
  void clear() const { __atomic_store_n(&host_->state, 0, __ATOMIC_RELEASE); }

 private:
  Unadmitted *host_, *device_;  // never freed: the device may write when the process ends
};
#endif

// OPSMITH_CHECK_VALUES=0 disables the check.
inline bool guards_values() {
  static const bool asked = [] {
    const char* text = std::getenv("OPSMITH_CHECK_VALUES");
    return text == nullptr || std::strcmp(text, "0") != 0;
  }();
  return asked;
}

// The integers in a range.
struct Whole {
  int64_t low = std::numeric_limits<int64_t>::min();
  int64_t high = std::numeric_limits<int64_t>::max();

  Whole() = default;
  explicit Whole(const Range& range) {
    if (range.low.present) low = range.low.integer + (range.above ? 1 : 0);
    if (range.high.present) high = range.high.integer - (range.exclusive ? 1 : 0);
  }
};

// The guard of one call. `Raw` is the operator's struct; N is the number of its checked tensors.
template <typename Raw, int N>
class ValueGuard {
 public:
  struct Words {
    const char *name, *start, *reasons;
    bool is_column;
  };

  ValueGuard(const Raw& raw, const Context& ctx, const Words* words)
      : raw_(raw), ctx_(ctx), words_(words) {}
  ValueGuard(const ValueGuard&) = delete;
  ValueGuard& operator=(const ValueGuard&) = delete;

  const Raw& raw() const { return raw_; }

  // Fails the call if an earlier call left a finding, then checks the values of this one.
  void begin(Mailbox& box) {
    box_ = &box;
    report(", in an earlier call");
    int64_t most = 0;
    for (const Looked& item : all_.items) most = std::max(most, item.count);
    if (most == 0) return;
    const unsigned blocks = std::min(blocks_for(most, 256), 1024u);
    launch(ctx_, admit_values<N>, dim3(N, blocks), 256, 0, all_, box.on_device());
  }
  void end() {
    if (box_ != nullptr) report("");
  }

  // A tensor, by the position of its pointer in `raw()`.
  void look(int item, const DLTensor* Raw::* member, const Range& range) {
    take(item, member, Whole(range), nullptr, Whole());
  }
  void look_at_column(int item, const DLTensor* Raw::* member, const Column& column) {
    take(item, member, Whole(column.range), nullptr, Whole(), column.place);
  }
  void look_at_runs(int item, const DLTensor* Raw::* member, const DLTensor* starts,
                    const Range& range, const Whole& start) {
    Whole whole(range);
    whole.low = 0;
    take(item, member, whole, starts, start);
  }

 protected:
  std::optional<Mailbox> own_box;  // if each call has its own

 private:
  void take(int number, const DLTensor* Raw::* member, Whole range, const DLTensor* starts,
            Whole start, int64_t column = -1) {
    const DLTensor* given = raw_.*member;
    // Kernels that accept strides read other tensors without a copy.
    const auto is_whole = [](const DLTensor* one) { return one == nullptr || is_contiguous(*one); };
    if (given == nullptr || !is_whole(given) || !is_whole(starts)) return;
    const int64_t count = numel(*given);
    if (count == 0) return;
    if (starts == nullptr && range.low > range.high) {
      ctx_.fail("argument '", names(number).name, "' has ", count,
                " values, and none is admitted: ", text(range.low, range.high, names(number)), ".");
    }
    Looked& item = all_.items[number];
    item = {memory(*given),
            starts == nullptr ? nullptr : memory(*starts),
            nullptr,
            count,
            range.low,
            range.high,
            start.low,
            start.high,
            1,
            0,
            dtype_key(given->dtype)};
    if (column >= 0) {
      item.width = given->shape[given->ndim - 1];
      item.place = column;
      item.count /= item.width;
    }
    const bool is_copy = given >= tensors_ && given < tensors_ + N;  // for an earlier column
    tensors_[number] = *given;
    if (!is_copy) {
      const int64_t bytes = count * given->dtype.bits / 8;
      tensors_[number].data = ctx_.template scratch<char>(bytes).data();
      tensors_[number].byte_offset = 0;
      if (column >= 0) {
        check_cuda(ctx_,
                   cudaMemcpyAsync(tensors_[number].data, item.values, bytes,
                                   cudaMemcpyDeviceToDevice, cuda_stream(ctx_)),
                   "cudaMemcpyAsync");
      }
    }
    item.admitted = tensors_[number].data;
    raw_.*member = &tensors_[number];
  }

  static const void* memory(const DLTensor& tensor) {
    return static_cast<const char*>(tensor.data) + tensor.byte_offset;
  }
  void report(const char* when) {
    const Unadmitted found = box_->read();
    if (found.state != 2) return;
    box_->clear();
    const Words& words = names(found.item);
    ctx_.fail("argument '", words.name, "' has value ",
              found.is_real ? show(found.real) : show(found.value), " at element ", found.index,
              when, ", expected ", text(found.low, found.high, words), ".");
  }
  static std::string text(int64_t low, int64_t high, const Words& words) {
    constexpr int64_t most = std::numeric_limits<int64_t>::max();
    Range range{Limit(low), Limit(), false, words.start, words.reasons};
    if (low == std::numeric_limits<int64_t>::min()) range.low = Limit();
    if (words.start != nullptr || high == most) {
      range.high = high == most ? Limit() : Limit(high);
    } else {
      range.high = Limit(high + 1);
      range.exclusive = true;
    }
    return words.is_column ? Column{0, range}.text() : range.text();
  }
  const Words& names(int32_t item) const { return words_[item]; }

  Raw raw_;
  const Context& ctx_;
  const Words* words_;
  LookedAt<N> all_{};
  DLTensor tensors_[N];
  Mailbox* box_ = nullptr;
};

}  // namespace opsmith::detail
