// The gate before a kernel that does not validate its arguments: compares them with the
// declaration, makes them contiguous where the kernel does not accept strides, and counts the calls
// that reach the kernel.
//
// It runs at the BackendSelect key, the last before a device's key: every call passes there, with
// gradients and without, in inference mode and from compiled code. Like the kernels behind it
// (sources with their own TORCH_LIBRARY block) it uses PyTorch's C++ interface.
#include "gate.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <opsmith/detail/arguments.h>
#include <opsmith/detail/torch/adapter.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <sstream>

namespace {

using opsmith::DLTensor;
using opsmith::opsmith_argument;

DLTensor describe(const at::TensorBase& tensor) {
  const opsmith::aten::Numbers& numbers = opsmith::aten::numbers();
  opsmith::DLDataType dtype = numbers.dtypes[static_cast<size_t>(tensor.scalar_type())];
  dtype.bits = static_cast<uint8_t>(8 * tensor.itemsize());  // also of dtypes without a number
  const c10::Device device = tensor.device();
  return {const_cast<void*>(tensor.const_data_ptr()),
          {numbers.dlpack_device(static_cast<int32_t>(device.type())),
           device.is_cpu() ? 0 : device.index()},
          static_cast<int32_t>(tensor.dim()),
          dtype,
          const_cast<int64_t*>(tensor.sizes().data()),
          const_cast<int64_t*>(tensor.strides().data()),
          0};
}

// One call's arguments in plain structs. Tensors are borrowed from the stack.
class Arguments {
 public:
  explicit Arguments(at::ArrayRef<c10::IValue> values)
      : given_(values.size()), tensors_(values.size()), scalars_(values.size()) {
    for (size_t i = 0; i < values.size(); ++i) given_[i] = take(values[i], i);
  }
  const opsmith_argument* data() const { return given_.data(); }

 private:
  opsmith_argument take(const c10::IValue& value, size_t place) {
    if (value.isTensor()) {
      const at::TensorBase& tensor = value.toTensor();
      if (!tensor.defined()) return {-1, nullptr};
      tensors_[place] = describe(tensor);
      return {1, &tensors_[place]};
    }
    if (value.isInt()) return scalar(value.toInt(), place);
    if (value.isDouble()) return scalar(value.toDouble(), place);
    if (value.isBool()) return scalar(static_cast<uint8_t>(value.toBool()), place);
    if (value.isString()) {
      const std::string& text = value.toStringRef();
      return {static_cast<int64_t>(text.size()), text.data()};
    }
    if (value.isNone()) return {-1, nullptr};
    const c10::List<c10::IValue> list = value.toList();
    if (list.empty()) return {0, nullptr};
    const c10::IValue first = list.get(0);
    if (first.isTensor()) {
      return sequence(list, [](const c10::IValue& item) { return describe(item.toTensor()); });
    }
    if (first.isInt()) {
      return sequence(list, [](const c10::IValue& item) { return item.toInt(); });
    }
    if (first.isDouble()) {
      return sequence(list, [](const c10::IValue& item) { return item.toDouble(); });
    }
    if (first.isBool()) {
      return sequence(list, [](const c10::IValue& item) -> uint8_t { return item.toBool(); });
    }
    return {static_cast<int64_t>(list.size()), nullptr};
  }

  template <typename T>
  opsmith_argument scalar(T value, size_t place) {
    static_assert(sizeof(T) <= sizeof(int64_t));
    std::memcpy(&scalars_[place], &value, sizeof value);
    return {1, &scalars_[place]};
  }

  template <typename Convert>
  opsmith_argument sequence(const c10::List<c10::IValue>& list, Convert&& convert) {
    using T = decltype(convert(list.get(0)));
    T* const items = reinterpret_cast<T*>(
        sequences_.emplace_back(std::make_unique<std::byte[]>(list.size() * sizeof(T))).get());
    for (size_t i = 0; i < list.size(); ++i) new (items + i) T(convert(list.get(i)));
    return {static_cast<int64_t>(list.size()), items};
  }

  c10::SmallVector<opsmith_argument, 16> given_;
  c10::SmallVector<DLTensor, 8> tensors_;
  c10::SmallVector<int64_t, 16> scalars_;
  std::vector<std::unique_ptr<std::byte[]>> sequences_;
};

// One device's kernel: the form in which it needs each argument, and how often it was called.
struct Kernel {
  Kernel(c10::DispatchKey key, std::string arrival) : key(key), arrival(std::move(arrival)) {}
  const c10::DispatchKey key;
  const std::string arrival;  // for each argument 's' as it is, 'c' contiguous, 'w' and written
  std::atomic<uint64_t> calls{0};
};
using Kernels = std::deque<Kernel>;

// The tensors of one argument that a call writes.
struct Written {
  Written(const char* name, const c10::IValue& value) : name(name), is_list(!value.isTensor()) {
    each_tensor(value, [&](const at::TensorBase& tensor) { views.push_back(describe(tensor)); });
  }
  int64_t count() const { return static_cast<int64_t>(views.size()); }
  // Calls visit(item, view), with the item -1 for an argument that is a tensor.
  template <typename Visit>
  void each(Visit&& visit) const {
    for (size_t i = 0; i < views.size(); ++i)
      visit(is_list ? static_cast<int64_t>(i) : -1, views[i]);
  }

  const char* name;
  bool is_list;
  c10::SmallVector<DLTensor, 1> views;
  opsmith::detail::Written memory;  // points into `views`
};

// Copies read-only tensors that lie in memory which the call writes, so that the call does not
// change them. Refuses a written tensor whose elements share memory, and two that share memory.
void keep_apart(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  if (!op.schema().is_mutable()) return;
  const auto& declared = op.schema().arguments();
  const char* const name = op.schema().name().c_str();
  const size_t first = stack.size() - declared.size();
  const auto is_written = [&](size_t i) {
    const auto* alias = declared[i].alias_info();
    return alias != nullptr && alias->isWrite();
  };
  c10::SmallVector<Written, 4> written;
  written.reserve(declared.size());
  for (size_t i = 0; i < declared.size(); ++i) {
    const c10::IValue& value = stack[first + i];
    const bool present = value.isTensor() ? value.toTensor().defined() : value.isTensorList();
    if (!is_written(i) || !present) continue;
    Written& one = written.emplace_back(declared[i].name().c_str(), value);
    one.each([&](int64_t item, const DLTensor& view) {
      opsmith::detail::require_own_elements(name, one.name, item, view);
    });
    one.memory.begin(name, one.name, one.views.data(), one.count(), one.is_list);
  }
  for (size_t i = 0; i < written.size(); ++i) {
    for (size_t j = 0; j < i; ++j) {
      written[i].each([&](int64_t item, const DLTensor& view) {
        written[j].memory.require_apart(name, written[j].name, written[i].name, view, item);
      });
    }
  }
  const auto apart = [&](const at::Tensor& tensor) {
    if (!tensor.defined()) return tensor;
    const DLTensor view = describe(tensor);
    const auto meets = [&](const Written& one) { return one.memory.meets(view); };
    if (std::none_of(written.begin(), written.end(), meets)) return tensor;
    const at::AutoDispatchBelowADInplaceOrView guard;
    return tensor.clone(at::MemoryFormat::Contiguous);
  };
  for (size_t i = 0; i < declared.size(); ++i) {
    c10::IValue& value = stack[first + i];
    if (is_written(i)) continue;
    if (value.isTensor()) {
      value = apart(value.toTensor());
    } else if (value.isTensorList()) {
      c10::List<at::Tensor> list;
      for (const at::Tensor& item : value.toTensorList()) list.push_back(apart(item));
      value = list;
    }
  }
}

// Passes contiguous copies to a call, and copies written values back into the caller's tensors.
class Contiguous {
 public:
  Contiguous(const std::string& arrival, torch::jit::Stack& stack) {
    const size_t first = stack.size() - arrival.size();
    for (size_t i = 0; i < arrival.size(); ++i) {
      if (arrival[i] == 's') continue;
      c10::IValue& value = stack[first + i];
      if (value.isTensorList()) {
        each(value, arrival[i] == 'w');
      } else if (value.isTensor() && value.toTensor().defined()) {
        one(value, arrival[i] == 'w');
      }
    }
  }

  void write_back() const {
    const at::AutoDispatchBelowADInplaceOrView guard;
    for (const auto& [tensor, copy] : written_) tensor.copy_(copy);
  }

 private:
  // As the row of CUDA says in devices.py: its vectors need multiples of their size.
  static bool is_ready(const at::Tensor& tensor) {
    return tensor.is_contiguous() &&
           !(tensor.is_cuda() && reinterpret_cast<uintptr_t>(tensor.const_data_ptr()) % 16 != 0);
  }
  static at::Tensor copied(const at::Tensor& tensor) {
    const at::AutoDispatchBelowADInplaceOrView guard;
    return tensor.clone(at::MemoryFormat::Contiguous);
  }

  void one(c10::IValue& value, bool written) {
    if (is_ready(value.toTensor())) return;
    const at::Tensor tensor = value.toTensor();
    value = copied(tensor);
    if (written) written_.emplace_back(tensor, value.toTensor());
  }

  void each(c10::IValue& value, bool written) {
    const c10::List<at::Tensor> tensors = value.toTensorList();
    if (std::all_of(tensors.begin(), tensors.end(), is_ready)) return;
    c10::List<at::Tensor> copies;
    for (const at::Tensor& tensor : tensors) {
      const bool ready = is_ready(tensor);
      copies.push_back(ready ? tensor : copied(tensor));
      if (written && !ready) written_.emplace_back(tensor, copies.get(copies.size() - 1));
    }
    value = copies;
  }

  std::vector<std::pair<at::Tensor, at::Tensor>> written_;
};

class Gate final : public c10::OperatorKernel {
 public:
  Gate(opsmith::opsmith_check_arguments check, std::shared_ptr<Kernels> kernels)
      : check_(check), kernels_(std::move(kernels)) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                  torch::jit::Stack* stack) {
    const c10::DispatchKeySet below = keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER,
                                                                 c10::DispatchKey::BackendSelect);
    const c10::DispatchKey next = below.highestPriorityTypeId();
    for (Kernel& kernel : *kernels_) {
      if (kernel.key != next) continue;
      compare(op, *stack);
      keep_apart(op, *stack);
      const Contiguous contiguous(kernel.arrival, *stack);
      kernel.calls.fetch_add(1, std::memory_order_relaxed);
      op.redispatchBoxed(below, stack);
      contiguous.write_back();
      return;
    }
    op.redispatchBoxed(below, stack);  // other kernels validate their arguments themselves
  }

 private:
  void compare(const c10::OperatorHandle& op, const torch::jit::Stack& stack) const {
    const size_t count = op.schema().arguments().size();
    const Arguments arguments(at::ArrayRef<c10::IValue>(stack).slice(stack.size() - count));
    const opsmith::aten::Call call({opsmith::device_cpu, 0});
    if (check_(arguments.data(), call.context()) != 0) throw std::runtime_error(call.message());
  }

  opsmith::opsmith_check_arguments check_;
  std::shared_ptr<Kernels> kernels_;
};

}  // namespace

extern "C" {

// Puts a gate before the kernels of `name`. For each kernel `arrivals` has a dispatch key and the
// form of its arguments, as in "CPU:ccw,CUDA:sss". Returns the same as `open_gate`.
__attribute__((visibility("default"))) void* opsmith_argument_gate_open(
    const char* name, const char* kernels, opsmith::opsmith_check_arguments check) {
  const auto known = std::make_shared<Kernels>();
  return open_gate(
      name, c10::DispatchKey::BackendSelect, "opsmith's argument gate",
      [&](c10::Dispatcher&) {
        std::istringstream words(kernels);
        for (std::string word; std::getline(words, word, ',');) {
          const size_t colon = word.find(':');
          known->emplace_back(c10::parseDispatchKey(word.substr(0, colon)), word.substr(colon + 1));
        }
        return std::make_unique<Gate>(check, known);
      },
      known);
}

// How often the kernel number `key` was called.
__attribute__((visibility("default"))) uint64_t opsmith_argument_gate_calls(const void* gate,
                                                                            int32_t key) {
  const void* kernels = static_cast<const Opened*>(gate)->kept.get();
  return (*static_cast<const Kernels*>(kernels))[static_cast<size_t>(key)].calls.load();
}

}  // extern "C"
