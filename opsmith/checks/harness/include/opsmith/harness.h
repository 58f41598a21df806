// The harness's types for the anatomy of an adapter: see <opsmith/detail/adapter.h>.
#pragma once

#include <opsmith/detail/adapter.h>
#include <opsmith/harness_runtime.h>

namespace opsmith::harness {

template <typename Raw>
class Argument {
 public:
  // The memory of tensors begins at a multiple of `alignment`, in bytes, and of their elements.
  explicit Argument(Runtime& runtime, uint64_t alignment = 1) {
    runtime.align(alignment);
    runtime.read(raw_);
  }
  const Raw& raw() const { return raw_; }
  void make_contiguous(const char*, uint64_t = 1) {}  // as they are sampled

 private:
  Raw raw_;
};

// Tensors that are written lie in writable memory already, so beginning and ending a write do
// nothing.
template <typename Raw>
class Written : public Argument<Raw> {
 public:
  using Argument<Raw>::Argument;
  void begin_write(const char*, const char*) {}
  void end_write() {}
};

template <>
class Argument<DLTensor*> : public Written<const DLTensor*> {
  using Written::Written;
};

template <>
class Argument<written_tensors> : public Written<raw_tensors> {
  using Written::Written;
};

class Call : public detail::CallContext {
 public:
  explicit Call(Runtime& runtime) : runtime_(runtime) {
    context_.every_loop = 1;
    context_.parallel_for = [](void* self, int64_t begin, int64_t end, int64_t,
                               void (*body)(int64_t, int64_t, void*), void* state) {
      runtime_of(self).parallel_for(begin, end, body, state);
    };
    context_.num_threads = [](void* self) { return runtime_of(self).num_threads(); };
    context_.scratch = [](void* self, uint64_t bytes) { return runtime_of(self).scratch(bytes); };
    context_.stream = [](void* self) { return runtime_of(self).stream(); };
  }
  Runtime& runtime() const { return runtime_; }

 private:
  static Runtime& runtime_of(void* self) {
    return static_cast<Call*>(static_cast<detail::CallContext*>(self))->runtime_;
  }

  Runtime& runtime_;
};

class Result {
 public:
  Result(Call& call, int32_t position) : runtime_(call.runtime()), position_(position) {}
  const DLTensor* allocate(const int64_t* sizes, int32_t ndim, DLDataType dtype) {
    allocated_ = true;
    return runtime_.result(position_, dtype, ndim, sizes);
  }
  bool allocated() const { return allocated_; }

 private:
  Runtime& runtime_;
  int32_t position_;
  bool allocated_ = false;
};

}  // namespace opsmith::harness
