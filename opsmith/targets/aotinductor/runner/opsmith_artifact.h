// Runs an artifact of opsmith.export(..., target="aotinductor") in a program without Python:
//
//   opsmith::Artifact model("dist");
//   std::vector<at::Tensor> outputs = model.run({image, ranks});
//
// Needs this file, opsmith_json.h, opsmith_sha256.h, opsmith_sizes.h, and libtorch of the version
// that exported (or a later one). Compile as C++20 and link torch, torch_cpu, c10 and dl;
// CMakeLists.txt shows how.
#pragma once

#include "opsmith_json.h"
#include "opsmith_sha256.h"
#include "opsmith_sizes.h"

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/grad_mode.h>
#include <c10/core/ScalarType.h>
#include <torch/csrc/inductor/aoti_package/model_package_loader.h>
#include <torch/library.h>

#include <dlfcn.h>
#include <sys/utsname.h>

#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <set>
#include <sstream>

namespace opsmith {

// The artifact is incomplete, changed, or not for this machine.
struct ArtifactError : std::runtime_error {
  using std::runtime_error::runtime_error;
};
// A library of the artifact does not load; the text is the loader's.
struct LibraryError : ArtifactError {
  using ArtifactError::ArtifactError;
};
// The inputs of a call do not fit.
struct ArgumentError : std::invalid_argument {
  using std::invalid_argument::invalid_argument;
};

// The specification of one input or output.
struct TensorSpec {
  std::string name;
  std::string dtype;               // such as "float32"
  std::vector<std::string> shape;  // numbers, symbols, or expressions over symbols

  std::string text() const;  // "x: float32 (batch, 4)"
};

class Artifact {
 public:
  // Reads the manifest, compares the SHA-256 of the model and of each library, and loads them.
  // Throws ArtifactError and LibraryError, naming the file.
  explicit Artifact(std::filesystem::path folder);

  const std::vector<TensorSpec>& inputs() const { return inputs_; }
  const std::vector<TensorSpec>& outputs() const { return outputs_; }
  // Returns the device that inputs must be on.
  at::Device device() const { return at::Device(manifest_.at("details").at("device").string()); }

  // One tensor per input, in the order of `inputs`; returns one per output. Several threads may
  // call at once; they wait for each other. Throws ArgumentError where an input does not fit, and
  // std::runtime_error with the message of a kernel that failed.
  std::vector<at::Tensor> run(std::vector<at::Tensor> inputs) const;

 private:
  struct Input {
    std::vector<int64_t> order;  // its dimensions from the outermost in memory to the innermost
    bool written = false;        // whether a call writes into it
  };
  using Bound = detail::Sizes::Bound;

  void read_manifest();
  void check_machine() const;
  void verify(const std::string& file) const;
  void load_libraries();
  bool is_here(const Json& library) const;
  void check_inputs(const std::vector<at::Tensor>& inputs) const;
  void check_size(const TensorSpec& spec, size_t axis, int64_t size, Bound& bound) const;
  void check_conditions(const Bound& bound) const;
  detail::Sizes sizes() const {
    return {manifest_.at("dims"), manifest_.at("details").at("sizes")};
  }
  std::string where() const { return folder_.string(); }

  std::filesystem::path folder_;
  Json manifest_;
  std::vector<TensorSpec> inputs_, outputs_;
  std::vector<Input> layouts_;
  std::unique_ptr<torch::inductor::AOTIModelPackageLoader> loader_;
};

namespace detail {

template <typename Items>
std::string joined(const Items& items) {
  std::ostringstream text;
  const char* comma = "";
  for (const auto& item : items) text << std::exchange(comma, ", ") << item;
  return text.str();
}

template <typename Sizes>
std::string shape_text(const Sizes& sizes) {
  return "(" + joined(sizes) + (sizes.size() == 1 ? ",)" : ")");
}

// C++ calls torch.float32 "float"; everywhere else it is "float32".
inline std::string dtype_name(at::ScalarType dtype) {
  return std::string(c10::getDtypeNames(dtype).first);
}

inline std::vector<TensorSpec> specs(const Json& json) {
  std::vector<TensorSpec> found;
  for (const Json& item : json.array()) {
    TensorSpec spec{item.at("name").string(), item.at("dtype").string(), {}};
    for (const Json& size : item.at("shape").array())
      spec.shape.push_back(size.is_string() ? size.string() : std::to_string(size.integer()));
    found.push_back(std::move(spec));
  }
  return found;
}

}  // namespace detail

inline std::string TensorSpec::text() const {
  return name + ": " + dtype + " " + detail::shape_text(shape);
}

inline Artifact::Artifact(std::filesystem::path folder) : folder_(std::move(folder)) {
  std::string model;
  try {
    read_manifest();
    check_machine();
    model = manifest_.at("details").at("model").string();
    verify(model);
    load_libraries();
  } catch (const ArtifactError&) {
    throw;
  } catch (const std::exception& error) {
    throw ArtifactError((folder_ / "manifest.json").string() + " is damaged: " + error.what());
  }
  try {
    loader_ = std::make_unique<torch::inductor::AOTIModelPackageLoader>((folder_ / model).string());
  } catch (const c10::Error& error) {
    throw LibraryError((folder_ / model).string() +
                       " does not load: " + error.what_without_backtrace());
  }
}

inline void Artifact::read_manifest() {
  const std::filesystem::path path = folder_ / "manifest.json";
  std::ifstream file(path, std::ios::binary);
  if (!file) {
    const bool there = std::filesystem::exists(folder_);
    throw ArtifactError(where() + " is not an opsmith artifact: " +
                        (there ? "it has no manifest.json" : "no such folder"));
  }
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  manifest_ = Json::parse(text);
  if (const int64_t version = manifest_.at("manifest").integer(); version < 1 || version > 2) {
    throw ArtifactError(path.string() + " has version " + std::to_string(version) +
                        ", and this program reads versions 1 and 2");
  }
  if (const std::string& target = manifest_.at("target").string(); target != "aotinductor") {
    throw ArtifactError(where() + " was exported for the target '" + target +
                        "', and this program runs 'aotinductor'");
  }
  inputs_ = detail::specs(manifest_.at("inputs"));
  outputs_ = detail::specs(manifest_.at("outputs"));
  for (const Json& item : manifest_.at("details").at("inputs").array()) {
    Input input;
    for (const Json& axis : item.at("order").array()) input.order.push_back(axis.integer());
    input.written = item.at("written").integer() != 0;
    layouts_.push_back(std::move(input));
  }
  if (layouts_.size() != inputs_.size()) throw std::runtime_error("its inputs are described twice");
}

// Code compiled for a processor with more features would crash this process without a message.
inline void Artifact::check_machine() const {
  const Json& machine = manifest_.at("details").at("machine");
  utsname here{};
  uname(&here);
  const std::string wanted = machine.at("architecture").string();
  if (wanted != here.machine) {
    throw ArtifactError(where() + " was compiled for " + wanted + ", this machine is " +
                        here.machine + ". Export the model on a machine like this one.");
  }
  std::ifstream file("/proc/cpuinfo");
  std::set<std::string> features;
  for (std::string line; features.empty() && std::getline(file, line);) {
    // x86 says "flags", Arm "Features".
    if (line.rfind("flags", 0) != 0 && line.rfind("Features", 0) != 0) continue;
    std::istringstream words(line.substr(line.find(':') + 1));
    for (std::string word; words >> word;) features.insert(word);
  }
  std::vector<std::string> missing;
  for (const Json& feature : machine.at("features").array()) {
    if (!features.empty() && features.count(feature.string()) == 0)
      missing.push_back(feature.string());
  }
  if (!missing.empty()) {
    throw ArtifactError(where() + " was compiled for a processor with " + detail::joined(missing) +
                        ", which this one lacks. Export the model on a machine like this one, or "
                        "with OPSMITH_ARCH set to a level that both processors have, as in "
                        "OPSMITH_ARCH=x86-64-v3, or =generic.");
  }
}

inline void Artifact::verify(const std::string& file) const {
  const std::filesystem::path path = folder_ / file;
  if (!manifest_.at("files").has(file))
    throw ArtifactError((folder_ / "manifest.json").string() + " lists no file '" + file + "'");
  if (std::filesystem::path(file).is_absolute() || file.find("..") != file.npos)
    throw ArtifactError(where() + ": the manifest names '" + file + "', outside the artifact");
  std::ifstream stream(path, std::ios::binary);
  if (!stream) {
    const bool there = std::filesystem::exists(path);
    throw ArtifactError(path.string() +
                        (there ? " cannot be read"
                               : " is missing; the manifest lists it. Export the model again."));
  }
  Sha256 sha;
  std::vector<char> piece(1 << 20);
  while (stream.read(piece.data(), static_cast<std::streamsize>(piece.size())), stream.gcount() > 0)
    sha.update(piece.data(), static_cast<size_t>(stream.gcount()));
  const std::string known = manifest_.at("files").at(file).at("sha256").string();
  if (const std::string found = sha.finish(); found != known) {
    throw ArtifactError(path.string() +
                        " is not the file that was exported, and is not loaded: its SHA-256 is " +
                        found + ", the manifest says " + known);
  }
}

inline void Artifact::load_libraries() {
  const Json::Array& libraries = manifest_.at("details").at("libraries").array();
  // Check before loading anything: an operator's definition and its kernel are two libraries.
  std::vector<bool> here;
  for (const Json& library : libraries) here.push_back(is_here(library));
  for (size_t i = 0; i < libraries.size(); ++i) {
    if (here[i]) continue;
    const Json& library = libraries[i];
    const std::string& file = library.at("file").string();
    verify(file);
    const std::filesystem::path path = std::filesystem::absolute(folder_ / file);
    if (dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL) == nullptr) {
      const char* words = dlerror();
      throw LibraryError(path.string() + " does not load: " + (words ? words : "no reason given"));
    }
  }
}

// Returns whether this process already has a library's operators, from another artifact or library:
// PyTorch allows one definition.
inline bool Artifact::is_here(const Json& library) const {
  const std::string& call = library.at("call").string();
  const std::string& first = library.at("operator").string();
  if (call == "direct") return false;
  std::vector<std::string> operators;
  if (!first.empty()) operators.push_back(first);
  if (library.has("defines")) {
    for (const auto& [op, schema] : library.at("defines").object()) operators.push_back(op);
  }
  c10::Dispatcher& dispatcher = c10::Dispatcher::singleton();
  std::string present, missing;
  for (const std::string& op : operators) {
    const size_t dot = op.find('.');
    const std::string overload = dot == op.npos ? "" : op.substr(dot + 1);
    (dispatcher.findSchema({op.substr(0, dot), overload}) ? present : missing) = op;
  }
  if (missing.empty()) return !present.empty();
  if (!first.empty() || !library.has("namespaces")) return false;
  // A library that the user passed to the export always makes its own definitions.
  std::string clash = present;
  for (const Json& ns : library.at("namespaces").array()) {
    try {
      const torch::Library probe(torch::Library::DEF, ns.string(), std::nullopt, __FILE__,
                                 __LINE__);
    } catch (const c10::Error&) {
      if (clash.empty()) clash = "a TORCH_LIBRARY block for '" + ns.string() + "'";
    }
  }
  if (clash.empty()) return false;
  throw LibraryError(
      (folder_ / library.at("file").string()).string() + " defines " + missing +
      ". This process has " + clash +
      " from another library, and PyTorch admits one definition. Load the artifact in a process "
      "without that library, or export it again with the library that is used here.");
}

inline std::vector<at::Tensor> Artifact::run(std::vector<at::Tensor> inputs) const {
  const at::NoGradGuard no_grad;
  check_inputs(inputs);
  const std::vector<at::Tensor> given = inputs;
  for (size_t i = 0; i < inputs.size(); ++i) {
    // Compiled code reads raw memory, so resolve lazy negative and conjugate bits, and use the
    // example's order of dimensions.
    const at::Tensor plain = given[i].resolve_conj().resolve_neg();
    const std::vector<int64_t>& order = layouts_[i].order;
    inputs[i] = plain.permute(order);
    if (inputs[i].is_contiguous()) {
      inputs[i] = plain;
      continue;
    }
    std::vector<int64_t> back(order.size());
    for (size_t axis = 0; axis < order.size(); ++axis)
      back[static_cast<size_t>(order[axis])] = static_cast<int64_t>(axis);
    inputs[i] = inputs[i].contiguous().permute(back);
  }
  std::vector<at::Tensor> outputs;
  try {
    outputs = loader_->run(inputs);
  } catch (const c10::Error& error) {
    throw std::runtime_error(error.what_without_backtrace());
  }
  for (size_t i = 0; i < inputs.size(); ++i) {
    if (layouts_[i].written && !inputs[i].is_same(given[i])) given[i].copy_(inputs[i]);
  }
  return outputs;
}

inline void Artifact::check_inputs(const std::vector<at::Tensor>& inputs) const {
  if (inputs.size() != inputs_.size()) {
    std::vector<std::string> names;
    for (const TensorSpec& spec : inputs_) names.push_back(spec.name);
    throw ArgumentError(where() + ": takes " + std::to_string(inputs_.size()) +
                        (inputs_.size() == 1 ? " input (" : " inputs (") + detail::joined(names) +
                        "), got " + std::to_string(inputs.size()) + ".");
  }
  const std::string& device = manifest_.at("details").at("device").string();
  Bound bound;
  // Bind the symbols before the expressions over them.
  for (const bool symbols : {true, false}) {
    for (size_t i = 0; i < inputs.size(); ++i) {
      const TensorSpec& spec = inputs_[i];
      const at::Tensor& tensor = inputs[i];
      const std::string what = where() + ": input '" + spec.name + "'";
      if (!tensor.defined()) throw ArgumentError(what + " is not a tensor.");
      const std::string dtype = detail::dtype_name(tensor.scalar_type());
      const std::string got =
          "\n  got: shape " + detail::shape_text(tensor.sizes()) + ", dtype " + dtype;
      if (dtype != spec.dtype)
        throw ArgumentError(what + " has dtype " + dtype + ", expected " + spec.dtype + "." + got);
      if (const std::string on = c10::DeviceTypeName(tensor.device().type(), true); on != device)
        throw ArgumentError(what + " is on " + on + ", expected " + device + "." + got);
      if (static_cast<size_t>(tensor.dim()) != spec.shape.size()) {
        throw ArgumentError(what + " has " + std::to_string(tensor.dim()) +
                            " dimensions, expected " + std::to_string(spec.shape.size()) + " for " +
                            spec.text() + "." + got);
      }
      try {
        for (size_t axis = 0; axis < spec.shape.size(); ++axis) {
          if (manifest_.at("dims").has(spec.shape[axis]) == symbols)
            check_size(spec, axis, tensor.size(static_cast<int64_t>(axis)), bound);
        }
      } catch (const ArgumentError& error) {
        throw ArgumentError(what + " does not fit " + spec.text() + ": " + error.what() + got);
      }
    }
  }
  if (manifest_.has("conditions")) check_conditions(bound);
}

// Compares the sizes with what the declarations of inlined operators require.
inline void Artifact::check_conditions(const Bound& bound) const {
  for (const Json& one : manifest_.at("conditions").array()) {
    const std::string& left = one.at("left").string();
    const std::string& right = one.at("right").string();
    const std::string& relation = one.at("relation").string();
    std::set<std::string> names;
    if (!sizes().symbols(left, bound, names) || !sizes().symbols(right, bound, names)) continue;
    const auto a = sizes().evaluate(left, bound), b = sizes().evaluate(right, bound);
    // A side without a value divides by zero.
    if (a && b && detail::compare(*a, relation, *b)) continue;
    std::vector<std::string> found;
    for (const std::string& name : names)
      found.push_back(name + "=" + std::to_string(bound.at(name)));
    throw ArgumentError(where() + ": the sizes do not fit " + one.at("operator").string() +
                        ", whose reference is part of the model: expected " + left + " " +
                        relation + " " + right + ", got " + detail::joined(found) + ".");
  }
}

inline void Artifact::check_size(const TensorSpec& spec, size_t axis, int64_t size,
                                 Bound& bound) const {
  const detail::Sizes sizes = this->sizes();
  const std::string& expected = spec.shape[axis];
  const std::string found = "dimension " + std::to_string(axis) +
                            (detail::is_number(expected) ? "" : " (" + expected + ")") + " is " +
                            std::to_string(size);
  if (manifest_.at("dims").has(expected)) {
    if (!sizes.allows(expected, size))
      throw ArgumentError(found + ", the export allows " + sizes.allowed(expected) + ".");
    const int64_t first = bound.emplace(expected, size).first->second;
    if (first != size) throw ArgumentError(found + ", expected " + std::to_string(first) + ".");
    return;
  }
  if (const auto line = sizes.line(expected, bound)) {
    // No input has a dimension of exactly this size, so solve for the symbol.
    const int64_t times = (size - line->start) / line->step;
    if (line->start + times * line->step != size || !sizes.allows(line->symbol, times)) {
      throw ArgumentError(found + ", the export allows " + expected + " with " +
                          sizes.allowed(line->symbol) + ".");
    }
    bound[line->symbol] = times;
  }
  const bool fixed = detail::is_number(expected);
  const std::optional<int64_t> wanted =
      fixed ? std::stoll(expected) : sizes.evaluate(expected, bound);
  if (wanted && *wanted != size) {
    throw ArgumentError(found + ", expected " + std::to_string(*wanted) +
                        (fixed ? ": the model was exported for this size alone. Name it in "
                                 "dynamic_shapes to allow others."
                               : "."));
  }
}

}  // namespace opsmith
