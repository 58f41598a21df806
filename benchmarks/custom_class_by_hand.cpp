// What custom_class.py compares with: the identity class as one writes it by hand for TorchBind.
#include <torch/custom_class.h>

namespace {

struct IdentityConvClass : torch::CustomClassHolder {
  explicit IdentityConvClass(int64_t channels) : channels_(channels) {}

  at::Tensor forward(const at::Tensor& x) const {
    TORCH_CHECK(x.dim() == 4 && x.size(1) == channels_, "x must have ", channels_, " channels");
    return x.clone();
  }
  int64_t get_channels() const { return channels_; }

 private:
  int64_t channels_;
};

TORCH_LIBRARY(opsmith_bench_by_hand, m) {
  m.class_<IdentityConvClass>("IdentityConvClass")
      .def(torch::init<int64_t>())
      .def("forward", &IdentityConvClass::forward)
      .def("get_channels", &IdentityConvClass::get_channels)
      .def("__obj_flatten__",
           [](const c10::intrusive_ptr<IdentityConvClass>& self) {
             return std::make_tuple(std::make_tuple(std::string("channels"), self->get_channels()));
           })
      .def_pickle(
          [](const c10::intrusive_ptr<IdentityConvClass>& self) { return self->get_channels(); },
          [](int64_t channels) { return c10::make_intrusive<IdentityConvClass>(channels); });
}

}  // namespace
