#include <ATen/core/Tensor.h>
#include <torch/library.h>

namespace {
at::Tensor old_style(const at::Tensor& x) { return x.add(3); }
}  // namespace

TORCH_LIBRARY_IMPL(aoti_test, CPU, m) { m.impl("old_style", &old_style); }
