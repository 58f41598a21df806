#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include <optional>
#include <vector>

namespace {

void mirror_torch(const at::Tensor& x, const std::vector<at::Tensor>& more, at::Tensor out,
                  const std::optional<at::Tensor>& count) {
  const int64_t n = x.size(0);
  float* to = out.data_ptr<float>();
  for (int64_t i = 0; i < n; ++i) {
    float sum = x.const_data_ptr<float>()[n - 1 - i];
    for (const at::Tensor& item : more) sum += item.const_data_ptr<float>()[n - 1 - i];
    to[i] = sum;
  }
  if (count) count->add_(1);
}

}  // namespace

TORCH_LIBRARY_IMPL(overlap, CPU, m) { m.impl("mirror_torch", &mirror_torch); }
