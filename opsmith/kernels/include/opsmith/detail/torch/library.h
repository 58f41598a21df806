// Included before a source with its own TORCH_LIBRARY or STABLE_TORCH_LIBRARY block: then the block
// defines only operators that do not exist yet. The same holds for torch::RegisterOperators, the
// predecessor of such blocks. opsmith declares an operator before it builds a kernel, and a second
// definition in PyTorch would end the process.
#pragma once

#include <ATen/core/op_registration/op_registration.h>
#include <torch/csrc/jit/runtime/custom_operator.h>
#include <torch/csrc/stable/library.h>
#include <torch/library.h>

#include <map>
#include <string>
#include <type_traits>
#include <vector>

namespace opsmith::torch_library {

// The definitions of this library: the schemas of operators that existed, and the fragments that
// hold those that did not.
struct Definitions {
  std::map<std::string, std::string> skipped;
  std::map<std::string, torch::Library> made;
  std::string problem;
  bool has_block = false;
};

inline Definitions& definitions() {
  static Definitions all;
  return all;
}

// The object that a TORCH_LIBRARY block receives in place of a torch::Library.
class Block {
 public:
  Block(std::string ns, const char* file, uint32_t line)
      : ns_(std::move(ns)), file_(file), line_(line), library_(fragment()) {
    definitions().has_block = true;
  }

  Block& def(c10::FunctionSchema&& schema, const std::vector<at::Tag>& tags = {}) {
    define(std::move(schema), tags);
    return *this;
  }
  Block& def(const char* schema, const std::vector<at::Tag>& tags = {}) {
    define(torch::schema(schema), tags);
    return *this;
  }
  template <typename NameOrSchema, typename Function>
  Block& def(NameOrSchema&& name_or_schema, Function&& function,
             const std::vector<at::Tag>& tags = {}) {
    torch::CppFunction kernel(std::forward<Function>(function));
    auto given = torch::detail::constructSchemaOrName(std::forward<NameOrSchema>(name_or_schema));
    c10::OperatorName name = std::holds_alternative<c10::OperatorName>(given)
                                 ? std::get<c10::OperatorName>(given)
                                 : std::get<c10::FunctionSchema>(given).operator_name();
    if (!is_there(name)) {
      // Without a schema, PyTorch infers it from the function.
      make(name, [&](torch::Library& library) {
        if (std::holds_alternative<c10::OperatorName>(given)) {
          library.def(std::move(std::get<c10::OperatorName>(given)), std::move(kernel), tags);
        } else {
          library.def(std::move(std::get<c10::FunctionSchema>(given)), std::move(kernel), tags);
        }
      });
      return *this;
    }
    if (std::holds_alternative<c10::FunctionSchema>(given)) {
      skip(name, std::get<c10::FunctionSchema>(given));
    }
    // The existing operator has a kernel for every device, the reference; register this one for its
    // own device only.
    impl(name.name.c_str(),
         torch::dispatch(c10::DispatchKey::OPSMITH_DISPATCH_KEY, std::move(kernel)));
    return *this;
  }

  template <typename... Arguments>
  Block& impl(Arguments&&... arguments) {
    library_.impl(std::forward<Arguments>(arguments)...);
    return *this;
  }
  template <typename Class>
  auto class_(const std::string& name) {
    return library_.class_<Class>(name);
  }
  template <typename Function>
  Block& fallback(Function&& function) {
    library_.fallback(std::forward<Function>(function));
    return *this;
  }
  Block& set_python_module(const char*, const char* = "") { return *this; }
  Block& impl_abstract_pystub(const char*, const char* = "") { return *this; }

  // For functions that expect the library to register in.
  operator torch::Library&() { return library_; }

 private:
  torch::Library fragment() const {
    return torch::Library(torch::Library::FRAGMENT, ns_, std::nullopt, file_, line_);
  }

  bool is_there(c10::OperatorName& name) const {
    name.setNamespaceIfNotSet(ns_.c_str());
    return c10::Dispatcher::singleton().findSchema(name).has_value();
  }

  void define(c10::FunctionSchema&& schema, const std::vector<at::Tag>& tags) {
    c10::OperatorName name = schema.operator_name();
    if (is_there(name)) {
      skip(name, schema);
    } else {
      make(name, [&](torch::Library& library) { library.def(std::move(schema), tags); });
    }
  }

  void skip(const c10::OperatorName& name, c10::FunctionSchema schema) const {
    schema.setNamespaceIfNotSet(ns_.c_str());
    definitions().skipped[toString(name)] = toString(schema);
  }

  // Each definition has its own fragment, so that it can be removed alone.
  template <typename Define>
  void make(const c10::OperatorName& name, Define&& define) const {
    torch::Library library = fragment();
    define(library);
    definitions().made.insert_or_assign(toString(name), std::move(library));
  }

  std::string ns_;
  const char* file_;
  uint32_t line_;
  torch::Library library_;
};

// The object that a STABLE_TORCH_LIBRARY block receives in place of a StableLibrary.
class StableBlock {
 public:
  StableBlock(const char* ns, const char* file, uint32_t line)
      : block_(ns, file, line),
        library_(torch::stable::detail::StableLibrary::Kind::FRAGMENT, ns, nullptr, file, line) {}

  StableBlock& def(const char* schema, const std::vector<at::Tag>& tags = {}) {
    block_.def(schema, tags);
    return *this;
  }
  StableBlock& impl(const char* name, void (*function)(StableIValue*, uint64_t, uint64_t)) {
    library_.impl(name, function);
    return *this;
  }
  StableBlock& set_python_module(const char*, const char* = "") { return *this; }

 private:
  Block block_;
  torch::stable::detail::StableLibrary library_;
};

// Runs the registrations while a library is loaded, when no caller could catch an exception.
template <typename Register>
void attempt(Register&& run) {
  try {
    run();
  } catch (const c10::Error& error) {
    definitions().problem = error.what_without_backtrace();
  } catch (const std::exception& error) {
    definitions().problem = error.what();
  }
}

template <typename Block>
struct Init {
  Init(void (*init)(Block&), const char* ns, const char* file, uint32_t line)
      : block(ns, file, line) {
    attempt([&] { init(block); });
  }
  Block block;
};

// The class that a source uses in place of torch::RegisterOperators.
class Operators {
 public:
  using Options = c10::RegisterOperators::Options;

  Operators() = default;
  template <typename Function>
  Operators(const std::string& schema_or_name, Function&& function) {
    add(schema_or_name, std::forward<Function>(function));
  }
  template <typename Function>
  Operators&& op(const std::string& schema_or_name, Function&& function) && {
    add(schema_or_name, std::forward<Function>(function));
    return std::move(*this);
  }
  template <typename Function>
  Operators& op(const std::string& schema_or_name, Function&& function) & {
    add(schema_or_name, std::forward<Function>(function));
    return *this;
  }
  Operators&& op(Options&&) && {
    refuse();
    return std::move(*this);
  }
  Operators& op(Options&&) & {
    refuse();
    return *this;
  }
  static Options options() { return c10::RegisterOperators::options(); }

 private:
  template <typename Function>
  void add(const std::string& schema_or_name, Function&& function) {
    if constexpr (std::is_same_v<std::decay_t<Function>, Options>) {
      refuse();
    } else {
      attempt([&] {
        const std::string name = schema_or_name.substr(0, schema_or_name.find('('));
        const size_t end = name.find("::");
        TORCH_CHECK(end != std::string::npos, "'", name, "' has no namespace");
        blocks_.emplace_back(name.substr(0, end), "torch::RegisterOperators", 0);
        blocks_.back().def(schema_or_name.c_str(), std::forward<Function>(function));
      });
    }
  }
  // The content of torch::RegisterOperators::options() cannot be read back.
  static void refuse() {
    definitions().problem =
        "opsmith does not take torch::RegisterOperators::options(). Write "
        "torch::RegisterOperators().op(\"ns::name\", &function), or a TORCH_LIBRARY block";
  }

  std::vector<Block> blocks_;
};

}  // namespace opsmith::torch_library

extern "C" {

// The error of a block; null if no block failed.
__attribute__((visibility("default"), weak)) const char* opsmith_torch_library_problem() {
  const std::string& problem = opsmith::torch_library::definitions().problem;
  return problem.empty() ? nullptr : problem.c_str();
}

// The schema that a block declares for an operator which existed before; null without one.
__attribute__((visibility("default"), weak)) const char* opsmith_torch_library_schema(
    const char* name) {
  const auto& skipped = opsmith::torch_library::definitions().skipped;
  const auto found = skipped.find(name);
  return found == skipped.end() ? nullptr : found->second.c_str();
}

// Removes the definition of an operator, so that other code can define it.
__attribute__((visibility("default"), weak)) void opsmith_torch_library_forget(const char* name) {
  opsmith::torch_library::definitions().made.erase(name);
}

}  // extern "C"

#define OPSMITH_LIBRARY_BLOCK(block, ns, m, uid)                                             \
  static void C10_CONCATENATE(opsmith_library_##ns##_, uid)(opsmith::torch_library::block&); \
  static const opsmith::torch_library::Init<opsmith::torch_library::block> C10_CONCATENATE(  \
      opsmith_library_init_##ns##_, uid)(&C10_CONCATENATE(opsmith_library_##ns##_, uid),     \
                                         C10_STRINGIZE(ns), __FILE__, __LINE__);             \
  void C10_CONCATENATE(opsmith_library_##ns##_,                                              \
                       uid)([[maybe_unused]] opsmith::torch_library::block & m)

namespace c10 {
using OpsmithOperators = opsmith::torch_library::Operators;
}
namespace torch {
using OpsmithOperators = opsmith::torch_library::Operators;
}
namespace torch::jit {
using OpsmithOperators = RegisterOperators;
}
#define RegisterOperators OpsmithOperators

#undef TORCH_LIBRARY
#undef TORCH_LIBRARY_FRAGMENT
#undef STABLE_TORCH_LIBRARY
#undef STABLE_TORCH_LIBRARY_FRAGMENT
#define TORCH_LIBRARY(ns, m) OPSMITH_LIBRARY_BLOCK(Block, ns, m, C10_UID)
#define TORCH_LIBRARY_FRAGMENT(ns, m) OPSMITH_LIBRARY_BLOCK(Block, ns, m, C10_UID)
#define STABLE_TORCH_LIBRARY(ns, m) OPSMITH_LIBRARY_BLOCK(StableBlock, ns, m, C10_UID)
#define STABLE_TORCH_LIBRARY_FRAGMENT(ns, m) OPSMITH_LIBRARY_BLOCK(StableBlock, ns, m, C10_UID)
