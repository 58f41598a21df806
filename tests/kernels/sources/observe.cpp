// Returns every argument that it sees, as numbers in a row.
#include <opsmith/kernel.h>

#include <vector>

#include "observe.h"

template <typename T>
void observe(const opsmith::Context&, const kernels_test::observe_args<T>& a) {
  std::vector<double> seen;
  const auto add = [&](auto value) { seen.push_back(static_cast<double>(value)); };
  for (int64_t i = 0; i < a.x.numel(); ++i) add(a.x[i]);
  add(a.y ? static_cast<double>(a.y(0, 0)) : -1.0);
  if (a.y.has_value()) {
    // As of a std::optional, each is the same element.
    const auto& y = *a.y;
    if (y(0, 0) != a.y->data()[0] || &y(0, 0) != &a.y.value()(0, 0)) add(-2);
  }
  add(a.many.size());
  for (int64_t i = 0; i < a.many.size(); ++i) add(a.many[i].numel());
  add(a.anything.template is<uint8_t>() ? a.anything.template as<const uint8_t>()[0] : -1);
  add(a.k);
  add(a.scale);
  add(a.flag);
  add(a.mode.size());
  for (int64_t value : a.sizes) add(value);
  for (int64_t value : a.fixed) add(value);
  for (double value : a.weights) add(value);
  for (uint8_t value : a.bits) add(value);
  add(a.maybe_int.value_or(-1));
  add(a.maybe_float.value_or(-1));
  add(a.maybe_bool ? (*a.maybe_bool ? 1 : 0) : -1);
  add(a.maybe_sizes ? static_cast<int64_t>(a.maybe_sizes->size()) : -1);
  add(a.maybe_pair ? (*a.maybe_pair)[1] : -1);
  add(a.maybe_text ? static_cast<int64_t>(a.maybe_text->size()) : -1);
  add(a.maybe_many.has_value() ? a.maybe_many->size() : -1);
  add(a.default_);
  for (int64_t value : a.batch) add(value);
  add(a.N);
  add(a.R);
  auto out = a.out0.allocate({static_cast<int64_t>(seen.size())});
  for (size_t i = 0; i < seen.size(); ++i) out[static_cast<int64_t>(i)] = seen[i];
  for (int64_t i = 0; i < a.out1.numel(); ++i) a.out1[i] = T(7);
  auto any = a.out2.template allocate<bool>({2});
  any[0] = true;
  any[1] = false;
}
OPSMITH_KERNEL(kernels_test, observe, cpu, float, double)
