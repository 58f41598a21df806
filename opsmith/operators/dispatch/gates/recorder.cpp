// The gate at the Autograd key for an operator whose declared backward is an operator: records a
// call that needs a gradient, and calls the backward operator, all in C++.
//
// To autograd it looks like one of PyTorch's own derivatives, so hooks on saved tensors, double
// backward and torch.func work. Like the other gate it uses PyTorch's C++ interface and is built
// once per PyTorch version; where it cannot be built, a Python function does the same.
// Without this macro, a sixth of the compile time goes into all PyTorch operators; none is called.
#define AT_PER_OPERATOR_HEADERS

#include "gate.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/grad_mode.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>
#include <torch/csrc/autograd/saved_variable.h>

#include <mutex>

namespace {

using torch::autograd::Node;
using torch::autograd::SavedVariable;
using torch::autograd::variable_list;

// Later releases of PyTorch count references within the node.
using NodePtr = decltype(torch::autograd::Edge{}.function);
constexpr bool counts_within = std::is_same_v<NodePtr, c10::intrusive_ptr<Node>>;

template <typename T, bool within = counts_within>
auto make_node() {
  if constexpr (within) {
    return c10::make_intrusive<T>();
  } else {
    return std::shared_ptr<T>(new T, [](T* node) { deleteNode(node); });
  }
}

template <typename T, bool within = counts_within>
NodePtr pointer_to(T& node) {
  if constexpr (within) {
    return c10::intrusive_ptr<Node>::reclaim_copy(&node);
  } else {
    return node.shared_from_this();
  }
}

struct Plan {
  struct Given {
    char kind;  // 'a' an argument, 'r' a result, 'g' the gradient of a result, 'd' the default
    size_t position;
  };
  std::string name;
  c10::OperatorHandle backward;
  std::vector<Given> given;        // for each parameter of the backward
  std::vector<int64_t> gradients;  // for each argument the backward's result, or -1
  std::vector<bool> differentiable;
  std::vector<bool> results;  // whether each has a gradient
};

// A saved argument or result: tensors as autograd saves them, other values unchanged.
class Kept {
 public:
  Kept(const c10::IValue& value, bool is_result) {
    if (value.isTensor()) {
      tensors_.emplace_back(value.toTensor(), is_result);
    } else if (value.isTensorList()) {
      is_list_ = true;
      for (const at::Tensor& tensor : value.toTensorVector()) tensors_.emplace_back(tensor, false);
    } else {
      plain_ = value;
    }
  }
  c10::IValue value(const NodePtr& node) const {
    if (is_list_) {
      std::vector<at::Tensor> tensors;
      for (const SavedVariable& tensor : tensors_) tensors.push_back(tensor.unpack(node));
      return tensors;
    }
    return tensors_.empty() ? plain_ : c10::IValue(tensors_[0].unpack(node));
  }
  void release() {
    for (SavedVariable& tensor : tensors_) tensor.reset_data();
  }

 private:
  std::vector<SavedVariable> tensors_;
  c10::IValue plain_;
  bool is_list_ = false;
};

struct Recorded final : Node {
  std::shared_ptr<const Plan> plan;
  std::vector<Kept> kept;                         // the arguments and results in `plan->given`
  std::vector<std::pair<int64_t, size_t>> edges;  // (result of the backward, index of its edge)

  std::string name() const override { return plan->name; }

  variable_list apply(variable_list&& grads) override {
    std::lock_guard<std::mutex> lock(mutex_);
    torch::jit::Stack stack;
    auto next = kept.begin();
    for (size_t i = 0; i < plan->given.size(); ++i) {
      const Plan::Given& given = plan->given[i];
      if (given.kind == 'd') {
        stack.push_back(*plan->backward.schema().arguments()[i].default_value());
      } else if (given.kind == 'g') {
        at::Tensor& grad = grads[given.position];
        // A result that was not used has no gradient, which means zero.
        stack.emplace_back(grad.defined() ? grad : input_metadata(given.position).zeros_like());
      } else {
        stack.push_back((next++)->value(pointer_to(*this)));
      }
    }
    plan->backward.callBoxed(stack);
    variable_list found(num_outputs());
    for (const auto& [result, edge] : edges) {
      if (task_should_compute_output(edge)) found[edge] = stack[result].toTensor();
    }
    return found;
  }

  void release_variables() override {
    std::lock_guard<std::mutex> lock(mutex_);
    for (Kept& one : kept) one.release();
  }
};

class Recorder final : public c10::OperatorKernel {
 public:
  Recorder(std::shared_ptr<const Plan> plan, c10::OperatorHandle derivative)
      : plan_(std::move(plan)), derivative_(derivative) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                  torch::jit::Stack* stack) {
    const size_t count = plan_->gradients.size();
    const size_t first = stack->size() - count;
    bool has_tangent = false, requires_grad = false;
    for (size_t i = 0; i < count; ++i) {
      each_tensor((*stack)[first + i], [&](const at::Tensor& tensor) {
        has_tangent |= tensor._fw_grad(0).defined();
        requires_grad |= plan_->differentiable[i] && tensor.requires_grad();
      });
    }
    if (has_tangent) {
      derivative_.redispatchBoxed(keys, stack);
      return;
    }
    decltype(make_node<Recorded>()) node;
    std::vector<c10::IValue> arguments;
    if (requires_grad && c10::GradMode::is_enabled()) {
      node = make_node<Recorded>();
      node->plan = plan_;
      arguments.assign(stack->begin() + static_cast<int64_t>(first), stack->end());
      add_edges(*node, arguments);
    }
    {
      at::AutoDispatchBelowAutograd guard;
      op.redispatchBoxed(keys & c10::after_autograd_keyset, stack);
    }
    if (node) record(node, arguments, *stack);
  }

 private:
  void add_edges(Recorded& node, const std::vector<c10::IValue>& arguments) const {
    for (size_t i = 0; i < arguments.size(); ++i) {
      if (!plan_->differentiable[i]) continue;
      each_tensor(arguments[i], [&](const at::Tensor& tensor) {
        if (plan_->gradients[i] >= 0)
          node.edges.emplace_back(plan_->gradients[i], node.num_outputs());
        node.add_next_edge(torch::autograd::impl::gradient_edge(tensor));
      });
    }
  }

  void record(const decltype(make_node<Recorded>())& node,
              const std::vector<c10::IValue>& arguments, torch::jit::Stack& stack) const {
    const size_t first = stack.size() - plan_->results.size();
    for (size_t i = 0; i < plan_->results.size(); ++i) {
      const at::Tensor& result = stack[first + i].toTensor();
      if (plan_->results[i] && torch::autograd::isDifferentiableType(result.scalar_type())) {
        torch::autograd::set_history(result, node);
      } else {
        node->add_input_metadata(Node::undefined_input());
      }
    }
    for (const Plan::Given& given : plan_->given) {
      if (given.kind == 'a') node->kept.emplace_back(arguments[given.position], false);
      if (given.kind == 'r') node->kept.emplace_back(stack[first + given.position], true);
    }
  }

  std::shared_ptr<const Plan> plan_;
  c10::OperatorHandle derivative_;
};

}  // namespace

extern "C" {

// Puts a recorder before `name`. Calls with tangents go to `derivative`, an operator of the same
// schema. `kinds` and `positions` state the value of each of the `given` parameters of `backward`.
// `gradients` holds for each of `arguments` the result of `backward` that is its gradient, or -1;
// `differentiable` says whether it may have one, and `results` whether each result has one.
// Returns the same as `open_gate`.
__attribute__((visibility("default"))) void* opsmith_recorder_open(
    const char* name, const char* derivative, const char* backward, const char* kinds,
    const int64_t* positions, uint64_t given, const int64_t* gradients, const char* differentiable,
    uint64_t arguments, const char* results) {
  return open_gate(
      name, c10::DispatchKey::Autograd, "opsmith's recorder", [&](c10::Dispatcher& dispatcher) {
        std::string title = dispatcher.findSchemaOrThrow(name, "").schema().name();
        title.replace(title.find("::"), 2, "_");
        auto plan = std::make_shared<Plan>(
            Plan{title + "Backward", dispatcher.findSchemaOrThrow(backward, ""), {}, {}, {}, {}});
        for (; *results != 0; ++results) plan->results.push_back(*results == 'd');
        for (uint64_t i = 0; i < given; ++i) {
          plan->given.push_back({kinds[i], static_cast<size_t>(positions[i])});
        }
        for (uint64_t i = 0; i < arguments; ++i) {
          plan->gradients.push_back(gradients[i]);
          plan->differentiable.push_back(differentiable[i] == 'd');
        }
        return std::make_unique<Recorder>(std::move(plan),
                                          dispatcher.findSchemaOrThrow(derivative, ""));
      });
}

}  // extern "C"
