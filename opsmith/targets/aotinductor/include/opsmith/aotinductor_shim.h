// What the generated AOTInductor shims are made of, beside the PyTorch adapter's types.
//
// Compiled code passes tensors as borrowed handles, everything optional as a pointer that may be
// null, and a sequence as a pointer and a count.
#pragma once

#include <opsmith/detail/torch.h>

namespace opsmith::adapter {

// A reference of our own to a tensor of the caller's, for `TensorArgument`.
inline StableIValue share(AtenTensorHandle tensor) {
  AtenTensorHandle shared = nullptr;
  OPSMITH_SHIM(aoti_torch_new_tensor_handle(tensor, &shared));
  return reinterpret_cast<StableIValue>(shared);
}

inline StableIValue share(const AtenTensorHandle* tensor) {
  return tensor == nullptr ? 0 : share(*tensor);
}

// Several borrowed tensors.
class TensorSpan {
 public:
  TensorSpan(const AtenTensorHandle* tensors, int64_t count)
      : tensors_(tensors),
        count_(count),
        copies_(std::make_unique<Handle[]>(static_cast<size_t>(count))),
        views_(std::make_unique<DLTensor[]>(static_cast<size_t>(count))) {}

  raw_tensors describe() {
    for (int64_t i = 0; i < count_; ++i) adapter::describe(tensors_[i], false, views_[i]);
    return {count_, views_.get()};
  }
  void make_contiguous() {
    for (int64_t i = 0; i < count_; ++i) {
      if (detail::is_contiguous(views_[i])) continue;
      copies_[i] = allocate(views_[i].shape, views_[i].ndim, views_[i].dtype, views_[i].device);
      const NoGrad guard;
      OPSMITH_SHIM(aoti_torch_copy_(copies_[i].get(), tensors_[i], 0));
      adapter::describe(copies_[i].get(), false, views_[i]);
    }
  }

 private:
  const AtenTensorHandle* tensors_;
  int64_t count_;
  std::unique_ptr<Handle[]> copies_;
  std::unique_ptr<DLTensor[]> views_;
};

// Several bools, which compiled code passes as 32-bit numbers.
class BoolSpan {
 public:
  BoolSpan(const int32_t* values, int64_t count)
      : values_(std::make_unique<uint8_t[]>(static_cast<size_t>(count))) {
    for (int64_t i = 0; i < count; ++i) values_[i] = values[i] != 0;
  }
  const uint8_t* items() const { return values_.get(); }

 private:
  std::unique_ptr<uint8_t[]> values_;
};

}  // namespace opsmith::adapter
