// Included before a source whose functions form a Python module, by PYBIND11_MODULE: the functions
// with the name of an operator become its kernels, unless a TORCH_LIBRARY block beside the module
// registers one, and no module is made. They are called with the values of PyTorch's dispatcher,
// converted to each function's parameter types.
#pragma once

#include <opsmith/detail/torch/library.h>

#include <c10/util/Metaprogramming.h>
#include <pybind11/pybind11.h>

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

namespace opsmith::torch_module {

// The object that holds the value of a function's parameter while the function runs.
template <typename T, typename = void>
struct Held;  // not defined for other types than operators have

template <>
struct Held<at::Tensor> {
  explicit Held(const c10::IValue& value)
      : held(value.isNone() ? at::Tensor() : value.toTensor()) {}
  at::Tensor held;
};
template <typename T>
struct Held<T, std::enable_if_t<std::is_same_v<T, bool> || std::is_same_v<T, std::string> ||
                                std::is_same_v<T, at::Scalar>>> {
  explicit Held(const c10::IValue& value) : held(value.to<T>()) {}
  T held;
};
template <typename T>
struct Held<T, std::enable_if_t<std::is_integral_v<T> && !std::is_same_v<T, bool>>> {
  explicit Held(const c10::IValue& value) : held(static_cast<T>(value.toInt())) {
    TORCH_CHECK(static_cast<int64_t>(held) == value.toInt(), value.toInt(),
                " does not fit into the type that the source's function takes");
  }
  T held;
};
template <typename T>
struct Held<T, std::enable_if_t<std::is_floating_point_v<T>>> {
  explicit Held(const c10::IValue& value) : held(static_cast<T>(value.toScalar().toDouble())) {}
  T held;
};
template <typename T>
struct Held<std::optional<T>, std::void_t<decltype(Held<T>::held)>> {
  explicit Held(const c10::IValue& value) {
    if (!value.isNone()) held = Held<T>(value).held;
  }
  std::optional<T> held;
};
template <typename T>
struct Held<std::vector<T>, std::void_t<decltype(Held<T>::held)>> {
  explicit Held(const c10::IValue& value) {
    for (const c10::IValue& item : value.toListRef()) held.push_back(Held<T>(item).held);
  }
  std::vector<T> held;
};
template <typename T>
struct Held<at::ArrayRef<T>, std::void_t<decltype(Held<T>::held)>> : Held<std::vector<T>> {
  using Held<std::vector<T>>::Held;
};

template <typename T, typename = void>
inline constexpr bool is_held = false;
template <typename T>
inline constexpr bool is_held<T, std::void_t<decltype(Held<std::decay_t<T>>::held)>> = true;

// The results of a function as the declaration counts them: a tuple, or a vector of tensors, is
// several.
template <typename T>
void give(std::vector<c10::IValue>& results, const T& value, bool) {
  results.emplace_back(value);
}
template <typename... T>
void give(std::vector<c10::IValue>& results, const std::tuple<T...>& values, bool is_list) {
  std::apply([&](const auto&... value) { (give(results, value, is_list), ...); }, values);
}
template <typename First, typename Second>
void give(std::vector<c10::IValue>& results, const std::pair<First, Second>& values, bool is_list) {
  give(results, values.first, is_list);
  give(results, values.second, is_list);
}
inline void give(std::vector<c10::IValue>& results, const std::vector<at::Tensor>& values,
                 bool is_list) {
  if (is_list) {
    results.emplace_back(values);
  } else {
    results.insert(results.end(), values.begin(), values.end());
  }
}

// A function with parameter types that operators have, called with values.
template <typename Called, typename Result, typename... Parameters>
class Kernel final : public c10::OperatorKernel {
 public:
  explicit Kernel(Called called) : called_(std::move(called)) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet, torch::jit::Stack* stack) {
    const std::vector<c10::IValue> given = torch::jit::pop(*stack, sizeof...(Parameters));
    std::vector<c10::IValue> results = call(op, given, std::index_sequence_for<Parameters...>());
    const size_t expected = op.schema().returns().size();
    if (expected == 0) results.clear();  // a status, perhaps
    TORCH_CHECK(results.size() == expected, op.schema().name(), ": the source's function returns ",
                results.size(), " results, and the declaration has ", expected);
    for (c10::IValue& result : results) stack->push_back(std::move(result));
  }

 private:
  template <size_t... index>
  std::vector<c10::IValue> call(const c10::OperatorHandle& op,
                                [[maybe_unused]] const std::vector<c10::IValue>& given,
                                std::index_sequence<index...>) {
    [[maybe_unused]] std::tuple<Held<std::decay_t<Parameters>>...> held{
        Held<std::decay_t<Parameters>>(given[index])...};
    std::vector<c10::IValue> results;
    if constexpr (std::is_void_v<Result>) {
      called_(static_cast<Parameters>(std::get<index>(held).held)...);
    } else {
      const auto& returns = op.schema().returns();
      const bool is_list = returns.size() == 1 && returns[0].type()->kind() == c10::ListType::Kind;
      give(results, called_(static_cast<Parameters>(std::get<index>(held).held)...), is_list);
    }
    return results;
  }

  Called called_;
};

// The functions of a source's modules by name: each makes itself the kernel of an operator, which
// may be declared long after the source was loaded.
struct Function {
  std::function<void(torch::Library&, const c10::FunctionSchema&)> implement;
  std::optional<torch::Library> registered;
};
inline std::map<std::string, Function>& functions() {
  static std::map<std::string, Function> all;
  return all;
}

template <typename Result, typename Called, typename... Parameters>
void implement(torch::Library& library, const c10::FunctionSchema& schema, const Called& function,
               c10::guts::typelist::typelist<Parameters...>*) {
  const size_t declared = schema.arguments().size();
  TORCH_CHECK(sizeof...(Parameters) == declared, "its function takes ", sizeof...(Parameters),
              " arguments, and the declaration has ", declared);
  if constexpr ((is_held<Parameters> && ...)) {
    library.impl(
        schema.name().c_str(),
        torch::dispatch(c10::DispatchKey::OPSMITH_DISPATCH_KEY,
                        torch::CppFunction::makeFromBoxedFunctor(
                            std::make_unique<Kernel<Called, Result, Parameters...>>(function))));
  } else {
    TORCH_CHECK(false, "its function takes an argument of a type that no operator has");
  }
}

// Accepts a value and ignores it: `m.doc() = "..."`.
struct Ignored {
  template <typename T>
  void operator=(T&&) {}
};

// The object that a PYBIND11_MODULE block receives in place of a module.
class Module {
 public:
  Module(const char*, const char*, uint32_t) {}

  // Further arguments describe the function to Python.
  template <typename Called, typename... Extra>
  Module& def(const char* name, Called&& function, const Extra&...) {
    using Kept = std::decay_t<Called>;
    using Traits = c10::guts::infer_function_traits_t<std::remove_pointer_t<Kept>>;
    functions()[name].implement = [function = Kept(std::forward<Called>(function))](
                                      torch::Library& library, const c10::FunctionSchema& schema) {
      implement<typename Traits::return_type>(
          library, schema, function, static_cast<typename Traits::parameter_types*>(nullptr));
    };
    return *this;
  }
  Ignored attr(const char*) { return {}; }
  Ignored doc() { return {}; }
};

// The reason why the function with an operator's name cannot become its kernel; empty if it did.
inline std::string become_kernel(const std::string& ns, const std::string& name) {
  const auto found = functions().find(name);
  const auto op = c10::Dispatcher::singleton().findSchema({ns + "::" + name, ""});
  if (torch_library::definitions().has_block &&
      (found == functions().end() ||
       (op && op->hasKernelForDispatchKey(c10::DispatchKey::OPSMITH_DISPATCH_KEY)))) {
    return {};
  }
  if (found == functions().end()) {
    std::string names;
    for (const auto& [other, function] : functions()) names += (names.empty() ? "" : ", ") + other;
    return "its PYBIND11_MODULE has no function '" + name + "'. It has " +
           (names.empty() ? "none" : names) +
           ": a function becomes the kernel of the operator that has its name";
  }
  try {
    found->second.registered.reset();  // of an earlier declaration
    torch::Library& library = found->second.registered.emplace(torch::Library::FRAGMENT, ns,
                                                               std::nullopt, __FILE__, __LINE__);
    found->second.implement(
        library,
        c10::Dispatcher::singleton().findSchemaOrThrow((ns + "::" + name).c_str(), "").schema());
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  }
  return {};
}

}  // namespace opsmith::torch_module

extern "C" {

// The reason why the function with an operator's name cannot become its kernel; null if it did.
__attribute__((visibility("default"), weak)) const char* opsmith_torch_module_become_kernel(
    const char* ns, const char* name) {
  static std::string problem;
  problem = opsmith::torch_module::become_kernel(ns, name);
  return problem.empty() ? nullptr : problem.c_str();
}

}  // extern "C"

namespace opsmith::torch_library {
using Module = torch_module::Module;
}

#undef PYBIND11_MODULE
#define PYBIND11_MODULE(name, m, ...) OPSMITH_LIBRARY_BLOCK(Module, module, m, C10_UID)
