// The gate at the Autograd key: a call that needs no derivative passes it in C++.
//
// PyTorch's own way for an operator written outside it is a Python function at this key, which
// then runs on every call, also in inference. The stable ABI cannot stand here: it has no way to
// read requires_grad, nor to go on below Autograd. So this one file uses PyTorch's C++ interface;
// it is built once per PyTorch version, is never part of an artifact, and where it cannot be built
// the Python function stays.
#include "gate.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/TensorBase.h>
#include <ATen/core/grad_mode.h>

namespace {

bool any_tensor(const c10::IValue& value, bool (*holds)(const at::TensorBase&)) {
  if (value.isTensor()) {
    const at::TensorBase& tensor = value.toTensor();
    return tensor.defined() && holds(tensor);
  }
  if (value.isList()) {
    for (const c10::IValue& element : value.toListRef()) {
      if (any_tensor(element, holds)) return true;
    }
  }
  return false;
}

bool requires_grad(const at::TensorBase& tensor) { return tensor.requires_grad(); }

bool has_tangent(const at::TensorBase& tensor) { return tensor._fw_grad(0).defined(); }

class Gate final : public c10::OperatorKernel {
 public:
  explicit Gate(c10::OperatorHandle derivative) : derivative_(derivative) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                  torch::jit::Stack* stack) {
    const size_t count = op.schema().arguments().size();
    const bool grad_mode = c10::GradMode::is_enabled();
    for (const c10::IValue& value : torch::jit::last(*stack, count)) {
      if ((grad_mode && any_tensor(value, requires_grad)) || any_tensor(value, has_tangent)) {
        derivative_.redispatchBoxed(keys, stack);
        return;
      }
    }
    at::AutoDispatchBelowAutograd guard;
    op.redispatchBoxed(keys & c10::after_autograd_keyset, stack);
  }

 private:
  c10::OperatorHandle derivative_;
};

}  // namespace

extern "C" {

// Puts a gate before `name`; `derivative` is the operator of the same schema that a call needing a
// derivative goes to. Returns as `open_gate`.
__attribute__((visibility("default"))) void* opsmith_gate_open(const char* name,
                                                               const char* derivative) {
  return open_gate(name, "opsmith's autograd gate", [&](c10::Dispatcher& dispatcher) {
    return std::make_unique<Gate>(dispatcher.findSchemaOrThrow(derivative, ""));
  });
}

}  // extern "C"
