// What call_overhead.py compares with: the identity operator as one writes it by hand against
// PyTorch's stable ABI.
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>
#include <torch/headeronly/util/Exception.h>

#include <cstring>

namespace {

using torch::stable::Tensor;

Tensor identity(const Tensor& x) {
  STD_TORCH_CHECK(x.dim() == 1, "x must have one dimension");
  STD_TORCH_CHECK(x.scalar_type() == torch::headeronly::ScalarType::Float, "x must be float32");
  STD_TORCH_CHECK(x.is_contiguous(), "x must be contiguous");
  Tensor out = torch::stable::empty_like(x);
  std::memcpy(out.mutable_data_ptr(), x.const_data_ptr(), x.numel() * sizeof(float));
  return out;
}

}  // namespace

STABLE_TORCH_LIBRARY(opsmith_bench_stable, m) { m.def("identity(Tensor x) -> Tensor"); }

STABLE_TORCH_LIBRARY_IMPL(opsmith_bench_stable, CPU, m) {
  m.impl("identity", TORCH_BOX(&identity));
}
