// Defines TorchBind classes from descriptions.
//
// An object is a list of field values; a method calls an operator of the dispatcher with the fields
// before its arguments. So one library can define every class. It is compiled once per PyTorch,
// whose C++ interface it uses, a further class costs no compilation, and a class can be declared
// again, which is impossible for a C++ type registered with torch::class_.
//
// A description has one fact per line, its columns separated by tabs:
//
//   opsmith-class  <version>
//   class          <namespace>  <name>
//   constructor    <schema, whose arguments are the fields>
//   getter         <method>  <position of the field>
//   method         <schema without self>  <operator>  <what it returns>  <fields it gives values
//   to>
//
// with the last two columns lists separated by commas. The operator's results are what the method
// returns (scalars as 0-dimensional tensors), then a 0-dimensional tensor per field of the last.
#include "runtime.h"

#include <ATen/core/builtin_function.h>
#include <ATen/core/class_type.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/ivalue.h>
#include <ATen/core/stack.h>
#include <torch/csrc/jit/frontend/function_schema_parser.h>

#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <string>
#include <vector>

// From torch/custom_class_detail.h, which would bring in much that is not needed here.
namespace torch {
TORCH_API void registerCustomClass(at::ClassTypePtr class_type);
TORCH_API void registerCustomClassMethod(std::unique_ptr<jit::Function> method);
TORCH_API at::ClassTypePtr getCustomClass(const std::string& name);
}  // namespace torch

namespace {

using c10::Argument;
using c10::IValue;
using torch::jit::Stack;
using Callable = std::function<void(Stack&)>;
using Columns = std::vector<std::string>;

constexpr int description_version = 1;

struct Definition {
  std::string qualname;  // ns::Name
  std::vector<Argument> fields;
  std::string layout;    // the fields as text; objects of equal layout are interchangeable
  bool changes = false;  // whether a method gives a field a new value

  int position(const std::string& field) const {
    for (size_t i = 0; i < fields.size(); ++i) {
      if (fields[i].name() == field) return static_cast<int>(i);
    }
    return -1;
  }
};
using DefinitionPtr = std::shared_ptr<const Definition>;

// The object behind a torch.ScriptObject.
struct Object : torch::CustomClassHolder {
  Object(DefinitionPtr d, std::vector<IValue> values)
      : definition(std::move(d)), fields(std::move(values)) {}

  const DefinitionPtr definition;
  std::vector<IValue> fields;
  std::mutex mutex;  // used only if methods change fields: writing several values is not atomic

  std::vector<IValue> read() {
    if (!definition->changes) return fields;
    const std::lock_guard<std::mutex> lock(mutex);
    return fields;
  }

  // Returns the fields for torch.compile, which reads them before every call, once for each place
  // in a model that holds the object. It identifies tensors by the identity of their Python
  // objects, so two tensors that it compares must not be the same object, nor may one reuse the
  // address of a freed one. Therefore return aliases that are kept, a different set each time.
  std::vector<IValue> show() {
    const std::lock_guard<std::mutex> lock(mutex);
    if (shown_.size() < shown_at_once) {
      turn_ = shown_.size();
      shown_.emplace_back(fields.size());
    } else {
      turn_ = (turn_ + 1) % shown_at_once;
    }
    std::vector<IValue>& shown = shown_[turn_];
    for (size_t i = 0; i < fields.size(); ++i) show(fields[i], shown[i]);
    return shown;
  }

 private:
  static bool is_alias(const at::Tensor& alias, const at::Tensor& tensor) {
    return alias.defined() && alias.has_storage() && alias.is_alias_of(tensor) &&
           alias.data_ptr() == tensor.data_ptr() && alias.sizes() == tensor.sizes() &&
           alias.strides() == tensor.strides() && alias.scalar_type() == tensor.scalar_type() &&
           alias.requires_grad() == tensor.requires_grad();
  }
  // Updates an alias, since the tensor may have been given other memory since.
  static at::Tensor alias_of(const at::Tensor& tensor, const at::Tensor& before) {
    if (!tensor.defined() || !tensor.has_storage()) return tensor;
    if (is_alias(before, tensor)) return before;
    return tensor.detach().requires_grad_(tensor.requires_grad());
  }
  static void show(const IValue& field, IValue& shown) {
    if (field.isTensor()) {
      shown = alias_of(field.toTensor(), shown.isTensor() ? shown.toTensor() : at::Tensor());
    } else if (field.isTensorList()) {
      const std::vector<at::Tensor> tensors = field.toTensorVector();
      std::vector<at::Tensor> before;
      if (shown.isTensorList()) before = shown.toTensorVector();
      before.resize(tensors.size());
      c10::List<at::Tensor> aliases;
      for (size_t i = 0; i < tensors.size(); ++i) {
        aliases.push_back(alias_of(tensors[i], before[i]));
      }
      shown = std::move(aliases);
    } else {
      shown = field;
    }
  }

  // The largest number of places at which one model may hold the same object.
  static constexpr size_t shown_at_once = 256;

  std::vector<std::vector<IValue>> shown_;
  size_t turn_ = 0;
};

Object& object_of(const IValue& self, const DefinitionPtr& expected) {
  Object& object = *static_cast<Object*>(self.toObjectRef().getSlot(0).toCapsule().get());
  TORCH_CHECK(object.definition == expected || object.definition->layout == expected->layout,
              expected->qualname,
              ": this object was made before the class was declared again with "
              "other fields. It has (",
              object.definition->layout, "), the class now has (", expected->layout,
              "). Make the object again.");
  return object;
}

IValue copy_of(const IValue& value) {
  const auto copy = [](const at::Tensor& tensor) {
    return tensor.defined() ? tensor.detach().clone().requires_grad_(tensor.requires_grad())
                            : tensor;
  };
  if (value.isTensor()) return copy(value.toTensor());
  if (!value.isTensorList()) return value;
  c10::List<at::Tensor> copies;
  for (const at::Tensor& tensor : value.toTensorVector()) copies.push_back(copy(tensor));
  return copies;
}

std::vector<IValue> copies_of(std::vector<IValue> values) {
  for (IValue& value : values) value = copy_of(value);
  return values;
}

void put_behind(const IValue& self, const DefinitionPtr& definition, std::vector<IValue> fields) {
  self.toObjectRef().setSlot(
      0, IValue::make_capsule(c10::make_intrusive<Object>(definition, std::move(fields))));
}

struct Method {
  std::string name;
  c10::OperatorName op;
  size_t arguments;
  std::vector<std::string> returns;
  std::vector<size_t> updates;
  bool has_tensors;  // among the fields and arguments
};

IValue number(const at::Tensor& tensor, const c10::Type& type) {
  const at::Scalar value = tensor.item();
  if (type.kind() == c10::TypeKind::BoolType) return value.toBool();
  if (type.kind() == c10::TypeKind::FloatType) return value.toDouble();
  return value.toLong();
}

const c10::TypePtr& type_named(const std::string& name) {
  static const std::map<std::string, c10::TypePtr> types = {
      {"tensor", c10::TensorType::get()}, {"tensors", c10::ListType::ofTensors()},
      {"int", c10::IntType::get()},       {"float", c10::FloatType::get()},
      {"bool", c10::BoolType::get()},
  };
  return types.at(name);
}

void call(const Method& method, const DefinitionPtr& definition, Stack& stack) {
  const size_t first = stack.size() - method.arguments;
  const IValue self = std::move(stack[first - 1]);
  Object& object = object_of(self, definition);

  Stack frame = object.read();
  frame.reserve(frame.size() + method.arguments);
  for (size_t i = first; i < stack.size(); ++i) frame.push_back(std::move(stack[i]));
  torch::jit::drop(stack, method.arguments + 1);

  // Look up the operator in every call: declaring the class again replaces it.
  const auto op = c10::Dispatcher::singleton().findSchema(method.op);
  TORCH_CHECK(op, definition->qualname, ".", method.name, ": the operator ", method.op.name,
              " is not in this process. Load the library of its kernel first.");
  if (!method.has_tensors && op->hasKernelForDispatchKey(c10::DispatchKey::CPU)) {
    // Without a tensor, the dispatcher sees no device and would not find the kernel.
    op->redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::CPU), &frame);
  } else {
    op->callBoxed(&frame);
  }

  const size_t returned = method.returns.size();
  TORCH_CHECK(frame.size() == returned + method.updates.size(), definition->qualname, ".",
              method.name, ": the operator ", method.op.name,
              " is another one than the class "
              "was declared with");
  if (!method.updates.empty()) {
    std::vector<IValue> values;
    for (size_t i = 0; i < method.updates.size(); ++i) {
      const c10::TypePtr& type = definition->fields[method.updates[i]].type();
      values.push_back(number(frame[returned + i].toTensor(), *type));
    }
    const std::lock_guard<std::mutex> lock(object.mutex);
    for (size_t i = 0; i < values.size(); ++i) object.fields[method.updates[i]] = values[i];
  }
  frame.resize(returned);
  for (size_t i = 0; i < returned; ++i) {
    const c10::Type& type = *type_named(method.returns[i]);
    if (frame[i].isTensor() && type.kind() != c10::TypeKind::TensorType) {
      frame[i] = number(frame[i].toTensor(), type);
    }
  }
  if (returned == 1) {
    stack.push_back(std::move(frame[0]));
  } else if (returned == 0) {
    stack.emplace_back();
  } else {
    stack.emplace_back(c10::ivalue::Tuple::create(std::move(frame)));
  }
}

// A class from its description, before it is registered with PyTorch.
struct Draft {
  std::string full_name;
  std::shared_ptr<Definition> definition = std::make_shared<Definition>();
  c10::ClassTypePtr type;  // the existing type, or a new one
  std::vector<std::unique_ptr<torch::jit::Function>> methods;
  std::vector<std::unique_ptr<torch::jit::Function>> properties;

  std::unique_ptr<torch::jit::Function> function(const std::string& name,
                                                 std::vector<Argument> arguments,
                                                 c10::TypePtr returned, Callable callable) const {
    arguments.insert(arguments.begin(), Argument("self", type));
    return std::make_unique<torch::jit::BuiltinOpFunction>(
        c10::QualifiedName(c10::QualifiedName(full_name), name),
        c10::FunctionSchema(name, "", std::move(arguments), {Argument("", std::move(returned))}),
        std::move(callable));
  }
  void add(const std::string& name, std::vector<Argument> arguments, c10::TypePtr returned,
           Callable callable) {
    methods.push_back(
        function(name, std::move(arguments), std::move(returned), std::move(callable)));
  }
};

// Construction, pickling, and what tracing looks at.
void add_protocol(Draft& draft) {
  const DefinitionPtr definition = draft.definition;
  const std::vector<Argument>& fields = definition->fields;
  const size_t count = fields.size();
  std::vector<c10::TypePtr> types, pairs;
  for (const Argument& field : fields) {
    types.push_back(field.type());
    pairs.push_back(c10::TupleType::create({c10::StringType::get(), field.type()}));
  }
  const c10::TypePtr state = c10::TupleType::create(std::move(types));

  draft.add("__init__", fields, c10::NoneType::get(), [definition, count](Stack& stack) {
    const IValue self = stack[stack.size() - count - 1];
    put_behind(self, definition, {stack.end() - static_cast<int64_t>(count), stack.end()});
    torch::jit::drop(stack, count + 1);
    stack.emplace_back();
  });
  draft.add("__getstate__", {}, state, [definition](Stack& stack) {
    std::vector<IValue> values = object_of(stack.back(), definition).read();
    stack.back() = c10::ivalue::Tuple::create(std::move(values));
  });
  // PyTorch makes a deep copy by passing one object's state to another. The tensors are shared at
  // this point, so copy them.
  draft.add("__setstate__", {Argument("state", state)}, c10::NoneType::get(),
            [definition](Stack& stack) {
              const auto values = stack.back().toTupleRef().elements();
              put_behind(stack[stack.size() - 2], definition, copies_of(values.vec()));
              torch::jit::drop(stack, 2);
              stack.emplace_back();
            });
  draft.add("__obj_flatten__", {}, c10::TupleType::create(std::move(pairs)),
            [definition](Stack& stack) {
              std::vector<IValue> values = object_of(stack.back(), definition).show();
              for (size_t i = 0; i < values.size(); ++i) {
                const std::string& name = definition->fields[i].name();
                values[i] = c10::ivalue::Tuple::create({IValue(name), std::move(values[i])});
              }
              stack.back() = c10::ivalue::Tuple::create(std::move(values));
            });
  for (const Argument& field : fields) {
    // A property cannot be unregistered, so look up its field in the object at hand.
    draft.properties.push_back(
        draft.function(field.name(), {}, c10::AnyType::get(), [name = field.name()](Stack& stack) {
          auto& object =
              *static_cast<Object*>(stack.back().toObjectRef().getSlot(0).toCapsule().get());
          const int at = object.definition->position(name);
          TORCH_CHECK(at >= 0, object.definition->qualname, " has no field '", name, "'");
          stack.back() = object.read()[static_cast<size_t>(at)];
        }));
  }
}

Columns split(const std::string& text, char separator) {
  Columns columns;
  std::istringstream stream(text);
  for (std::string column; std::getline(stream, column, separator);) columns.push_back(column);
  return columns;
}

bool holds_tensors(const Argument& argument) {
  const std::string type = argument.type()->str();
  return type.find("Tensor") != std::string::npos;
}

void add_method(Draft& draft, const Columns& line) {
  const DefinitionPtr definition = draft.definition;
  const c10::FunctionSchema schema = torch::jit::parseSchema(line.at(1));
  Method method{schema.name(), c10::OperatorName(line.at(2), ""), schema.arguments().size(), {}, {},
                false};
  method.returns = split(line.size() > 3 ? line[3] : "", ',');
  for (const std::string& field : split(line.size() > 4 ? line[4] : "", ',')) {
    method.updates.push_back(static_cast<size_t>(std::stoi(field)));
  }
  for (const Argument& field : definition->fields) method.has_tensors |= holds_tensors(field);
  for (const Argument& argument : schema.arguments()) method.has_tensors |= holds_tensors(argument);
  draft.definition->changes |= !method.updates.empty();

  std::vector<c10::TypePtr> types;
  for (const std::string& name : method.returns) types.push_back(type_named(name));
  c10::TypePtr returned = c10::NoneType::get();
  if (types.size() == 1) returned = types[0];
  if (types.size() > 1) returned = c10::TupleType::create(std::move(types));
  draft.add(schema.name(), schema.arguments(), returned,
            [method, definition](Stack& stack) { call(method, definition, stack); });
}

void add_getter(Draft& draft, const Columns& line) {
  const DefinitionPtr definition = draft.definition;
  const size_t at = static_cast<size_t>(std::stoi(line.at(2)));
  draft.add(line.at(1), {}, definition->fields.at(at).type(), [definition, at](Stack& stack) {
    IValue value = object_of(stack.back(), definition).read()[at];
    stack.back() = std::move(value);
  });
}

Draft read_description(const std::string& text) {
  Draft draft;
  for (const std::string& row : split(text, '\n')) {
    const Columns line = split(row, '\t');
    if (line[0] == "opsmith-class") {
      TORCH_CHECK(std::stoi(line.at(1)) == description_version,
                  "the description of a custom class has version ", line.at(1),
                  ", and this library reads version ", description_version);
    } else if (line[0] == "class") {
      draft.definition->qualname = line.at(1) + "::" + line.at(2);
      draft.full_name = "__torch__.torch.classes." + line.at(1) + "." + line.at(2);
      draft.type = torch::getCustomClass(draft.full_name);
      if (draft.type == nullptr) {
        draft.type = c10::ClassType::create(c10::QualifiedName(draft.full_name),
                                            std::weak_ptr<torch::jit::CompilationUnit>());
        draft.type->addAttribute("capsule", c10::CapsuleType::get());
      }
    } else if (line[0] == "constructor") {
      draft.definition->fields = torch::jit::parseSchema(line.at(1)).arguments();
      std::ostringstream layout;
      for (const Argument& field : draft.definition->fields) {
        layout << (layout.tellp() > 0 ? ", " : "") << field.type()->str() << " " << field.name();
      }
      draft.definition->layout = layout.str();
      add_protocol(draft);
    } else if (line[0] == "getter") {
      add_getter(draft, line);
    } else if (line[0] == "method") {
      add_method(draft, line);
    }
  }
  return draft;
}

std::map<std::string, std::string> schemas_of(const std::vector<torch::jit::Function*>& methods) {
  std::map<std::string, std::string> schemas;
  for (torch::jit::Function* method : methods) {
    std::ostringstream text;
    text << method->getSchema();
    schemas[method->name()] = text.str();
  }
  return schemas;
}

// The classes that this library defined.
std::mutex& registry_mutex() {
  static std::mutex mutex;
  return mutex;
}
std::map<std::string, std::string>& registry() {
  static std::map<std::string, std::string> classes;
  return classes;
}

void define(const std::string& text, bool replace) {
  Draft draft = read_description(text);
  const std::string& name = draft.definition->qualname;
  const std::lock_guard<std::mutex> lock(registry_mutex());
  const bool exists = torch::getCustomClass(draft.full_name) != nullptr;
  if (exists && !replace) {
    std::vector<torch::jit::Function*> ours;
    for (const auto& method : draft.methods) ours.push_back(method.get());
    TORCH_CHECK(schemas_of(ours) == schemas_of(draft.type->methods()), name,
                ": this process has a class of that name already, with other fields or methods");
    return;
  }
  TORCH_CHECK(
      !exists || registry().count(name), name,
      ": PyTorch already has a class of this name, which opsmith did not define. Give yours "
      "another name.");
  if (!exists) torch::registerCustomClass(draft.type);
  for (const auto& [method, schema] : schemas_of(draft.type->methods())) {
    draft.type->unsafeRemoveMethod(method);
  }
  for (auto& method : draft.methods) {
    draft.type->addMethod(method.get());
    torch::registerCustomClassMethod(std::move(method));
  }
  for (auto& property : draft.properties) {
    if (draft.type->getProperty(property->name())) continue;
    draft.type->addProperty(property->name(), property.get(), nullptr);
    torch::registerCustomClassMethod(std::move(property));
  }
  registry()[name] = text;
}

std::string& last_error() {
  thread_local std::string error;
  return error;
}

}  // namespace

const char* opsmith_class_define(const char* description, int32_t replace) {
  try {
    define(description, replace != 0);
    return nullptr;
  } catch (const c10::Error& error) {
    last_error() = error.what_without_backtrace();
  } catch (const std::exception& error) {
    last_error() = error.what();
  }
  return last_error().c_str();
}
