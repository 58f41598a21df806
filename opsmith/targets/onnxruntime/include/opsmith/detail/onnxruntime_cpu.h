// The types of ONNX Runtime's CPU provider; see onnxruntime.h.
#pragma once

#include <opsmith/detail/adapter.h>
#include <opsmith/detail/loop.h>
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
  // ONNX Runtime does not provide the session's number of threads.
  static int32_t threads() {
    static const int32_t count =
        static_cast<int32_t>(std::max(1u, std::thread::hardware_concurrency()));
    return count;
  }
  static void parallel_for(void* self, int64_t begin, int64_t end, int64_t grain,
                           void (*body)(int64_t, int64_t, void*), void* state) {
    detail::Loop loop(begin, end, grain, threads(), body, state);
    const size_t count = static_cast<size_t>(loop.count());
    check(api().KernelContext_ParallelFor(
        static_cast<Call*>(static_cast<CallContext*>(self))->kernel_,
        [](void* opaque, size_t index) {
          static_cast<const detail::Loop*>(opaque)->piece(static_cast<int64_t>(index));
        },
        count, count, &loop));
  }

  KernelContext* kernel_;
};

}  // namespace opsmith::ort
