// The types of ONNX Runtime's CUDA provider; see onnxruntime.h. Tensors are on the device, where
// the host cannot read them, and work is added to the provider's stream. CUDA's headers are not
// needed.
#pragma once

#include <opsmith/detail/adapter.h>
#include <opsmith/detail/cuda_driver.h>
#include <opsmith/detail/onnxruntime_api.h>

#include <mutex>
#include <vector>

namespace opsmith::ort {

inline constexpr const char* provider = "CUDAExecutionProvider";

inline DLDevice device_of(const Value* value) {
  const MemoryInfo* info = nullptr;
  check(api().GetTensorMemoryInfo(value, &info));
  int32_t type = 0;
  int32_t id = 0;
  api().MemoryInfoGetDeviceType(info, &type);
  constexpr int32_t gpu = 1;
  if (type != gpu) return {device_cpu, 0};
  check(api().MemoryInfoGetId(info, &id));
  return {device_cuda, id};
}

inline void* stream_of(const KernelContext* kernel) {
  void* stream = nullptr;
  check(api().KernelContext_GetGPUComputeStream(kernel, &stream));
  return stream;
}

inline void copy(KernelContext* kernel, void* to, const void* from, size_t bytes) {
  const cuda::Driver& driver = cuda::Driver::get();
  const cuda::OnDevice current(to);
  driver.check(driver.copy(reinterpret_cast<uint64_t>(to), reinterpret_cast<uint64_t>(from), bytes,
                           stream_of(kernel)),
               "copying an argument that is written");
}

// The provider's allocator, and the description of its memory.
class Memory {
 public:
  explicit Memory(const KernelInfo* info) {
    constexpr int32_t on_device = 0;
    check(api().KernelInfoGetAllocator(info, on_device, &allocator_));
    check(api().AllocatorGetInfo(allocator_, &info_));
  }
  ~Memory() {
    if (allocator_ != nullptr) api().ReleaseAllocator(allocator_);
  }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  Allocator* allocator() const { return allocator_; }
  const MemoryInfo* info() const { return info_; }

 private:
  Allocator* allocator_ = nullptr;
  const MemoryInfo* info_ = nullptr;
};

// The Context of one call.
class Call : public detail::CallContext {
 public:
  Call(KernelContext* kernel, const Memory& memory) : kernel_(kernel), memory_(memory) {
    context_.num_threads = [](void*) -> int32_t { return 1; };
    context_.stream = [](void* self) { return stream_of(of(self).kernel_); };
    context_.scratch = &scratch;
  }
  // The allocator knows that work in the stream still uses the freed memory.
  ~Call() {
    for (void* piece : scratch_) succeeds(api().AllocatorFree(memory_.allocator(), piece));
  }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

  KernelContext* kernel() const { return kernel_; }

 private:
  static Call& of(void* self) { return *static_cast<Call*>(static_cast<CallContext*>(self)); }

  static void* scratch(void* self, uint64_t bytes) {
    Call& call = of(self);
    const std::lock_guard<std::mutex> lock(call.mutex_);
    call.scratch_.reserve(call.scratch_.size() + 1);
    void* memory = nullptr;
    if (!succeeds(api().KernelContext_GetScratchBuffer(call.kernel_, call.memory_.info(), bytes,
                                                       &memory))) {
      return nullptr;
    }
    call.scratch_.push_back(memory);
    return memory;
  }

  KernelContext* kernel_;
  const Memory& memory_;
  std::vector<void*> scratch_;
};

}  // namespace opsmith::ort
