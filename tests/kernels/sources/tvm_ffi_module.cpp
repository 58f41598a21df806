// Functions that tvm_ffi.cpp exports from one module.
#include <tvm/ffi/container/array.h>
#include <tvm/ffi/container/tensor.h>
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/optional.h>

namespace ffi = tvm::ffi;
using ffi::TensorView;

float* data(TensorView tensor) { return static_cast<float*>(tensor.data_ptr()); }

void multiply_add(TensorView x, TensorView y, TensorView out) {
  for (int64_t i = 0; i < x.numel(); ++i) data(out)[i] = data(x)[i] * data(y)[i] + data(x)[i];
}

void multiply_add_backward(TensorView grad, TensorView x, TensorView y, TensorView grad_x,
                           TensorView grad_y) {
  for (int64_t i = 0; i < x.numel(); ++i) {
    data(grad_x)[i] = data(grad)[i] * (data(y)[i] + 1);
    data(grad_y)[i] = data(grad)[i] * data(x)[i];
  }
}

// Writes an element more than there are.
void beyond(TensorView x, TensorView out) {
  for (int64_t i = 0; i <= x.numel(); ++i) data(out)[i] = data(x)[i % x.numel()];
}

// The result comes first, and a size is passed.
void column(TensorView out, TensorView x, int64_t columns, int64_t at) {
  for (int64_t i = 0; i < out.size(0); ++i) data(out)[i] = data(x)[i * columns + at];
}

ffi::Tensor like(TensorView x) {
  return ffi::Tensor::FromEnvAlloc(TVMFFIEnvTensorAlloc, x.shape(), x.dtype(), x.device());
}

ffi::Array<ffi::Tensor> scaled(TensorView x, int64_t times, double plus, bool negate,
                               ffi::String mode, ffi::Optional<double> value,
                               ffi::Optional<TensorView> bias) {
  if (mode == "a mode that nobody knows") TVM_FFI_THROW(ValueError) << "mode: " << mode;
  ffi::Tensor one = like(x), two = like(x);
  for (int64_t i = 0; i < x.numel(); ++i) {
    data(one)[i] = (negate ? -1 : 1) * data(x)[i] * times + plus;
    data(two)[i] = value.value_or(7) + (bias.has_value() ? data(*bias)[i] : 0);
  }
  return {one, two};
}

ffi::Tensor positive(TensorView x) {
  int64_t count = 0;
  for (int64_t i = 0; i < x.numel(); ++i) count += data(x)[i] > 0;
  ffi::Tensor found =
      ffi::Tensor::FromEnvAlloc(TVMFFIEnvTensorAlloc, {count}, x.dtype(), x.device());
  for (int64_t i = 0, at = 0; i < x.numel(); ++i) {
    if (data(x)[i] > 0) data(found)[at++] = data(x)[i];
  }
  return found;
}
