// Three operators as PyTorch's C++ extensions define them: a module for Python to import, a block
// with their schemas, and one with their kernels for the CPU.
#include <torch/extension.h>

extern "C" PyObject* PyInit__C() {
  static PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_C", nullptr, -1, nullptr};
  return PyModule_Create(&definition);
}

namespace aoti_extension {

template <typename Function>
void each(const at::Tensor& a, const at::Tensor& b, at::Tensor& out, Function&& function) {
  TORCH_CHECK(a.sizes() == b.sizes() && a.sizes() == out.sizes());
  TORCH_CHECK(out.is_contiguous());
  const at::Tensor left = a.contiguous();
  const at::Tensor right = b.contiguous();
  for (int64_t i = 0; i < out.numel(); ++i) {
    out.data_ptr<float>()[i] = function(left.data_ptr<float>()[i], right.data_ptr<float>()[i]);
  }
}

at::Tensor mymuladd_cpu(const at::Tensor& a, const at::Tensor& b, double c) {
  at::Tensor result = torch::empty(a.sizes(), a.options());
  each(a, b, result, [c](float x, float y) { return x * y + static_cast<float>(c); });
  return result;
}

at::Tensor mymul_cpu(const at::Tensor& a, const at::Tensor& b) {
  at::Tensor result = torch::empty(a.sizes(), a.options());
  each(a, b, result, [](float x, float y) { return x * y; });
  return result;
}

void myadd_out_cpu(const at::Tensor& a, const at::Tensor& b, at::Tensor& out) {
  each(a, b, out, [](float x, float y) { return x + y; });
}

TORCH_LIBRARY(aoti_extension, m) {
  m.def("mymuladd(Tensor a, Tensor b, float c) -> Tensor");
  m.def("mymul(Tensor a, Tensor b) -> Tensor");
  m.def("myadd_out(Tensor a, Tensor b, Tensor(a!) out) -> ()");
}

TORCH_LIBRARY_IMPL(aoti_extension, CPU, m) {
  m.impl("mymuladd", &mymuladd_cpu);
  m.impl("mymul", &mymul_cpu);
  m.impl("myadd_out", &myadd_out_cpu);
}

}  // namespace aoti_extension
