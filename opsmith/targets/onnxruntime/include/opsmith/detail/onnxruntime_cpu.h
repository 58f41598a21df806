// The types of ONNX Runtime's CPU provider; see onnxruntime.h.
#pragma once

#include <opsmith/detail/adapter.h>
#include <opsmith/detail/onnxruntime_api.h>

#include <algorithm>
#include <cstring>
#include <thread>

namespace opsmith::ort {

inline constexpr const char* provider = nullptr;

inline DLDevice device_of(const Value*) { return {device_cpu, 0}; }

inline void copy(KernelContext*, void* to, const void* from, size_t bytes) {
  std::memcpy(to, from, bytes);
}

// Host memory does not need ONNX Runtime's allocator.
struct Memory {
  explicit Memory(const KernelInfo*) {}
};

// The Context of one call.
class Call : public detail::CallContext {
 public:
  Call(KernelContext* kernel, const Memory&) : kernel_(kernel) {
    context_.parallel_for = &parallel_for;
    context_.num_threads = [](void*) { return threads(); };
  }
  KernelContext* kernel() const { return kernel_; }

 private:
  struct Pieces {
    int64_t begin;
    int64_t end;
    int64_t size;
    void (*body)(int64_t, int64_t, void*);
    void* state;
  };

  static int32_t threads() {
    static const int32_t count =
        static_cast<int32_t>(std::max(1u, std::thread::hardware_concurrency()));
    return count;
  }
  static void parallel_for(void* self, int64_t begin, int64_t end, int64_t grain,
                           void (*body)(int64_t, int64_t, void*), void* state) {
    // More pieces than threads, so that a slow thread delays the others less; ONNX Runtime does not
    // provide the session's number of threads.
    const int64_t most = int64_t{threads()} * 4;
    const int64_t wanted = std::clamp<int64_t>((end - begin + grain - 1) / grain, 1, most);
    const int64_t size = (end - begin + wanted - 1) / wanted;
    Pieces pieces{begin, end, size, body, state};
    const size_t count = static_cast<size_t>((end - begin + size - 1) / size);
    check(api().KernelContext_ParallelFor(
        static_cast<Call*>(static_cast<CallContext*>(self))->kernel_,
        [](void* opaque, size_t index) {
          const Pieces& all = *static_cast<const Pieces*>(opaque);
          const int64_t first = all.begin + static_cast<int64_t>(index) * all.size;
          all.body(first, std::min(first + all.size, all.end), all.state);
        },
        count, count, &pieces));
  }

  KernelContext* kernel_;
};

}  // namespace opsmith::ort
