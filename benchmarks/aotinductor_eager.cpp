// What aotinductor.py compares with: an operator called from C++ through PyTorch's dispatcher.
#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>

// Passes 16 floats through `name` as many times as `calls` says.
extern "C" __attribute__((visibility("default"))) void call_eagerly(const char* name,
                                                                    int64_t calls) {
  const at::NoGradGuard guard;
  static const auto op = c10::Dispatcher::singleton()
                             .findSchemaOrThrow(name, "")
                             .typed<at::Tensor(const at::Tensor&)>();
  at::Tensor x = at::zeros({16});
  for (int64_t i = 0; i < calls; ++i) x = op.call(x);
}
