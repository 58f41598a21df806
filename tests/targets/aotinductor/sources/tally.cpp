// A TorchBind class of somebody else, which counts its calls.
#include <ATen/ops/mul.h>
#include <torch/custom_class.h>

#include <string>
#include <tuple>

namespace {

struct Tally : torch::CustomClassHolder {
  explicit Tally(int64_t count) : count(count) {}

  at::Tensor forward(const at::Tensor& x) { return at::mul(x, ++count); }

  int64_t count;
};

using Holder = c10::intrusive_ptr<Tally>;

TORCH_LIBRARY(aoti_foreign_class, m) {
  m.class_<Tally>("Tally")
      .def(torch::init<int64_t>())
      .def("forward", &Tally::forward)
      .def_readonly("count", &Tally::count)
      .def("__obj_flatten__",
           [](const Holder& self) {
             return std::make_tuple(std::make_tuple(std::string("count"), self->count));
           })
      .def_pickle([](const Holder& self) { return self->count; },
                  [](int64_t count) { return c10::make_intrusive<Tally>(count); });
}

}  // namespace
