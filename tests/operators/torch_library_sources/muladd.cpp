#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

namespace extension_cpp {

at::Tensor multiply_add(const at::Tensor& a, const at::Tensor& b, double c) {
  TORCH_CHECK(a.sizes() == b.sizes());
  const at::Tensor x = a.contiguous();
  const at::Tensor y = b.contiguous();
  at::Tensor sum = at::empty(x.sizes(), x.options());
  const float* left = x.data_ptr<float>();
  const float* right = y.data_ptr<float>();
  float* to = sum.data_ptr<float>();
  for (int64_t i = 0; i < sum.numel(); ++i) to[i] = left[i] * right[i] + static_cast<float>(c);
  return sum;
}

at::Tensor multiply(const at::Tensor& a, const at::Tensor& b) {
  const at::Tensor x = a.contiguous();
  const at::Tensor y = b.contiguous();
  at::Tensor product = at::empty(x.sizes(), x.options());
  for (int64_t i = 0; i < product.numel(); ++i)
    product.data_ptr<float>()[i] = x.data_ptr<float>()[i] * y.data_ptr<float>()[i];
  return product;
}

void add_out(const at::Tensor& a, const at::Tensor& b, at::Tensor& out) {
  TORCH_CHECK(out.is_contiguous());
  const at::Tensor x = a.contiguous();
  const at::Tensor y = b.contiguous();
  for (int64_t i = 0; i < out.numel(); ++i)
    out.data_ptr<float>()[i] = x.data_ptr<float>()[i] + y.data_ptr<float>()[i];
}

// Reads without a look at the indices.
at::Tensor pick(const at::Tensor& x, const at::Tensor& at, at::ArrayRef<double> scales,
                at::TensorList more, const c10::List<std::string>& names,
                std::optional<c10::string_view> name, std::optional<int64_t> limit) {
  at::Tensor picked = at::empty(at.sizes(), x.options());
  for (int64_t i = 0; i < at.numel(); ++i)
    picked.data_ptr<float>()[i] = x.data_ptr<float>()[at.data_ptr<int64_t>()[i]];
  return picked;
}

// Takes the library as many sources hand it around.
void define_pick(torch::Library& library) {
  library.impl("mypick", torch::dispatch(c10::DispatchKey::CPU, TORCH_FN(pick)));
}

TORCH_LIBRARY(extension_cpp, m) {
  m.def("mymuladd(Tensor a, Tensor b, float c) -> Tensor");
  m.def("mymul(Tensor a, Tensor b) -> Tensor");
  m.def("myadd_out(Tensor a, Tensor b, Tensor(a!) out) -> ()");
  m.def(
      "mypick(Tensor x, Tensor at, float[] scales, Tensor[] more, str[] names, str? name=None, "
      "int? limit=None) -> Tensor");
  m.def("left_alone(Tensor x) -> Tensor", [](const at::Tensor& x) { return x.add(1); });
  define_pick(m);
}

TORCH_LIBRARY_IMPL(extension_cpp, CPU, m) {
  m.impl("mymuladd", &multiply_add);
  m.impl("mymul", &multiply);
  m.impl("myadd_out", &add_out);
}

}  // namespace extension_cpp
