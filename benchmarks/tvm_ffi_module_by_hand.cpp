// 2a + b as people write it for tvm-ffi: one dtype, one dimension, all that is read compared.
#include <tvm/ffi/extra/c_env_api.h>
#include <tvm/ffi/tvm_ffi.h>

namespace ffi = tvm::ffi;

inline void add(ffi::TensorView a, ffi::TensorView b, ffi::TensorView out) {
  for (const ffi::TensorView& one : {a, b, out}) {
    TVM_FFI_CHECK(one.device().device_type == kDLCPU, ValueError) << "expected the CPU";
    TVM_FFI_CHECK(one.dtype() == (DLDataType{kDLFloat, 32, 1}), TypeError) << "expected float32";
    TVM_FFI_CHECK(one.ndim() == 1 && one.size(0) == a.size(0), ValueError) << "sizes differ";
    TVM_FFI_CHECK(one.IsContiguous(), ValueError) << "expected contiguous tensors";
  }
  const float *const x = static_cast<const float*>(a.data_ptr()), *const y =
                                                                      static_cast<const float*>(
                                                                          b.data_ptr());
  float* const z = static_cast<float*>(out.data_ptr());
  for (int64_t i = 0; i < a.size(0); ++i) z[i] = 2 * x[i] + y[i];
}

ffi::Tensor my_add(ffi::TensorView a, ffi::TensorView b) {
  ffi::Tensor out =
      ffi::Tensor::FromEnvAlloc(TVMFFIEnvTensorAlloc, a.shape(), a.dtype(), a.device());
  add(a, b, out);
  return out;
}

void my_add_out(ffi::TensorView a, ffi::TensorView b, ffi::TensorView out) { add(a, b, out); }
