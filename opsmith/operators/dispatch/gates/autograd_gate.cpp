// The gate at the Autograd key lets a call that needs no derivative pass in C++. The gate at
// ADInplaceOrView raises the version counters of written tensors in C++.
//
// PyTorch's own way for an operator written outside it is a Python function at each of these keys,
// which then runs on every call, also in inference. The stable ABI cannot stand here: it has no way
// to read requires_grad, to raise a counter, nor to go on below these keys. So this one file uses
// PyTorch's C++ interface; it is built once per PyTorch version, is never part of an artifact, and
// where it cannot be built the Python functions stay.
#include "gate.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/TensorBase.h>
#include <ATen/core/grad_mode.h>

namespace {

class Gate final : public c10::OperatorKernel {
 public:
  explicit Gate(c10::OperatorHandle derivative) : derivative_(derivative) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                  torch::jit::Stack* stack) {
    const size_t count = op.schema().arguments().size();
    const bool grad_mode = c10::GradMode::is_enabled();
    bool needed = false;
    for (const c10::IValue& value : torch::jit::last(*stack, count)) {
      each_tensor(value, [&](const at::TensorBase& tensor) {
        needed |= (grad_mode && tensor.requires_grad()) || tensor._fw_grad(0).defined();
      });
    }
    if (needed) {
      derivative_.redispatchBoxed(keys, stack);
      return;
    }
    at::AutoDispatchBelowAutograd guard;
    op.redispatchBoxed(keys & c10::after_autograd_keyset, stack);
  }

 private:
  c10::OperatorHandle derivative_;
};

// Autograd compares these counters to find a saved tensor that was overwritten.
class Versions final : public c10::OperatorKernel {
 public:
  explicit Versions(const c10::FunctionSchema& schema) : count_(schema.arguments().size()) {
    for (size_t i = 0; i < count_; ++i) {
      const auto* alias = schema.arguments()[i].alias_info();
      if (alias != nullptr && alias->isWrite()) written_.push_back(i);
    }
  }

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                  torch::jit::Stack* stack) {
    // The kernel takes its arguments off the stack, and the tensors out of lists.
    c10::SmallVector<at::TensorBase, 4> tensors;
    for (const size_t i : written_) {
      each_tensor((*stack)[stack->size() - count_ + i],
                  [&](const at::TensorBase& tensor) { tensors.push_back(tensor); });
    }
    {
      at::AutoDispatchBelowADInplaceOrView guard;
      op.redispatchBoxed(keys & c10::after_ADInplaceOrView_keyset, stack);
    }
    for (const at::TensorBase& written : tensors) {
      c10::TensorImpl* const tensor = written.unsafeGetTensorImpl();
      if (!tensor->is_inference()) tensor->bump_version();  // such tensors have no counter
    }
  }

 private:
  size_t count_;
  c10::SmallVector<size_t, 4> written_;
};

}  // namespace

extern "C" {

// Puts a gate before `name`. Calls that need a derivative go to `derivative`, an operator of the
// same schema. Returns the same as `open_gate`.
__attribute__((visibility("default"))) void* opsmith_gate_open(const char* name,
                                                               const char* derivative) {
  return open_gate(
      name, c10::DispatchKey::Autograd, "opsmith's autograd gate",
      [&](c10::Dispatcher& dispatcher) {
        return std::make_unique<Gate>(*dispatcher.findSchema(torch::jit::parseName(derivative)));
      });
}

// Raises the version counters of the tensors that `name` writes. Returns the same as `open_gate`.
__attribute__((visibility("default"))) void* opsmith_versions_open(const char* name) {
  return open_gate(name, c10::DispatchKey::ADInplaceOrView, "opsmith's version counters",
                   [&](c10::Dispatcher& dispatcher) {
                     return std::make_unique<Versions>(
                         dispatcher.findSchema(torch::jit::parseName(name))->schema());
                   });
}

}  // extern "C"
