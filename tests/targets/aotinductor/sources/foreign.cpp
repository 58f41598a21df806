#include <ATen/core/Tensor.h>
#include <torch/library.h>

namespace {
at::Tensor twice(const at::Tensor& x) { return x.mul(2); }
}  // namespace

TORCH_LIBRARY(aoti_foreign, m) {
  m.def("twice(Tensor x) -> Tensor");
#ifdef MORE
  m.def("thrice(Tensor x) -> Tensor");
#endif
}

TORCH_LIBRARY_IMPL(aoti_foreign, CPU, m) { m.impl("twice", &twice); }
