// Runs an artifact of the target "aotinductor" on tensors from files. See `usage` below.
#include "opsmith_artifact.h"

#include <ATen/Parallel.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <chrono>
#include <cstdio>
#include <iostream>
#include <sstream>

// As torch/serialize.h declares them; including it takes two thirds of the time of this build.
namespace torch {
TORCH_API std::vector<char> pickle_save(const c10::IValue& value);
TORCH_API c10::IValue pickle_load(const std::vector<char>& data);
}  // namespace torch

namespace {

constexpr const char* usage = R"(usage: opsmith-run FOLDER [INPUT.pt ...] [options]

Runs the artifact in FOLDER, without Python. Each INPUT.pt was written by torch.save and holds a
tensor, a list or tuple of tensors, or a dictionary of tensors by the inputs' names; together they
are the model's inputs in order.

  --output FILE   write the outputs, a tuple of tensors, for torch.load
  --written FILE  write the inputs as the first run left them, for a model that writes into them
  --repeat N      run N times, and print how long a run takes
  --warmup N      runs before the timed ones (default 3, with --repeat)
  --threads N     how many threads PyTorch may use
  --describe      print the inputs and outputs, and run nothing
  --help

exit codes: 0 done; 2 a wrong command line; 3 the artifact is incomplete, changed or not for this
machine; 4 a library of it does not load; 5 a file of inputs cannot be read, or the output not
written; 6 the inputs do not fit; 7 the model or a kernel failed
)";

enum Exit { kDone, kUsage = 2, kArtifact, kLibrary, kFile, kInputs, kFailed };

struct UsageError : std::runtime_error {
  using std::runtime_error::runtime_error;
};
struct FileError : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Options {
  std::string folder, output, written;
  std::vector<std::string> inputs;
  int repeat = 0, warmup = 3, threads = 0;
  bool describe = false, help = false;
};

int count(const std::string& option, const std::string& text) {
  if (!opsmith::detail::is_number(text) || text.size() > 9)
    throw UsageError(option + " takes a number, got '" + text + "'");
  return std::stoi(text);
}

Options parse(int argc, char** argv) {
  Options options;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    const auto value = [&]() -> std::string {
      if (i + 1 == argc) throw UsageError(word + " needs a value");
      return argv[++i];
    };
    if (word == "--output")
      options.output = value();
    else if (word == "--written")
      options.written = value();
    else if (word == "--repeat")
      options.repeat = count(word, value());
    else if (word == "--warmup")
      options.warmup = count(word, value());
    else if (word == "--threads")
      options.threads = count(word, value());
    else if (word == "--describe")
      options.describe = true;
    else if (word == "--help" || word == "-h")
      options.help = true;
    else if (word.rfind("--", 0) == 0)
      throw UsageError("there is no option " + word);
    else if (options.folder.empty())
      options.folder = word;
    else
      options.inputs.push_back(word);
  }
  if (options.folder.empty() && !options.help) throw UsageError("which artifact?");
  return options;
}

c10::IValue read(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  if (!file || std::filesystem::is_directory(path))
    throw FileError(path + ": no such file, or it cannot be read");
  const std::vector<char> bytes{std::istreambuf_iterator<char>(file), {}};
  try {
    return torch::pickle_load(bytes);
  } catch (const std::exception&) {
    throw FileError(path +
                    " was not written by torch.save, or holds more than tensors, or tensors of a "
                    "dtype that PyTorch reads in Python only (uint16, uint32, uint64, float8)");
  }
}

// Adds the tensors of one file, by their names or at the end.
void add(const std::string& path, const opsmith::Artifact& model, std::vector<at::Tensor>& inputs) {
  const c10::IValue value = read(path);
  const auto tensor = [&](const c10::IValue& item) {
    if (!item.isTensor()) throw FileError(path + " holds a " + item.tagKind() + ", not a tensor");
    return item.toTensor().to(model.device());
  };
  if (value.isTensorList()) {
    for (const at::Tensor& item : value.toTensorVector()) inputs.push_back(tensor(item));
  } else if (value.isList()) {
    for (const c10::IValue& item : value.toListRef()) inputs.push_back(tensor(item));
  } else if (value.isTuple()) {
    for (const c10::IValue& item : value.toTupleRef().elements()) inputs.push_back(tensor(item));
  } else if (value.isGenericDict()) {
    const auto items = value.toGenericDict();
    for (const auto& item : items) {
      const std::string name = item.key().isString() ? item.key().toStringRef() : "";
      size_t place = 0;
      while (place < model.inputs().size() && model.inputs()[place].name != name) ++place;
      if (place == model.inputs().size()) {
        std::vector<std::string> names;
        for (const opsmith::TensorSpec& spec : model.inputs()) names.push_back(spec.name);
        throw opsmith::ArgumentError(path + ": the model has no input '" + name + "'; there are " +
                                     opsmith::detail::joined(names));
      }
      if (inputs.size() <= place) inputs.resize(place + 1);
      inputs[place] = tensor(item.value());
    }
  } else {
    inputs.push_back(tensor(value));
  }
}

void write(const std::string& path, const std::vector<at::Tensor>& outputs) {
  std::vector<c10::IValue> items;
  // Resolve lazy negative and conjugate bits: torch.load accepts them only from torch.save.
  for (const at::Tensor& output : outputs)
    items.emplace_back(output.cpu().resolve_conj().resolve_neg());
  const std::vector<char> bytes = torch::pickle_save(c10::ivalue::Tuple::create(items));
  // Write to a partial file first, so that a killed run leaves no incomplete file.
  const std::string partial = path + ".partial";
  std::ofstream file(partial, std::ios::binary);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  std::error_code failed;
  if (file) std::filesystem::rename(partial, path, failed);
  if (!file || failed) throw FileError(path + " cannot be written");
}

// Captures what the compiled model writes to the error stream. The model prints its errors there,
// and PyTorch before 2.13 does not pass on their text.
class Overheard {
 public:
  Overheard() : before_(std::cerr.rdbuf(text_.rdbuf())) {}
  ~Overheard() { std::cerr.rdbuf(before_); }
  std::string text() const { return text_.str(); }

 private:
  std::ostringstream text_;
  std::streambuf* before_;
};

std::vector<at::Tensor> call(const opsmith::Artifact& model,
                             const std::vector<at::Tensor>& inputs) {
  const Overheard overheard;
  try {
    return model.run(inputs);
  } catch (const opsmith::ArgumentError&) {
    throw;
  } catch (const std::exception& error) {
    const std::string message = error.what();
    const std::string said = overheard.text();
    if (said.empty() || message.find("API call failed") == message.npos) throw;
    throw std::runtime_error(said.rfind("Error: ", 0) == 0 ? said.substr(7) : said);
  }
}

void describe(const opsmith::Artifact& model) {
  std::cout << "inputs\n";
  for (const opsmith::TensorSpec& spec : model.inputs()) std::cout << "  " << spec.text() << "\n";
  std::cout << "outputs\n";
  for (const opsmith::TensorSpec& spec : model.outputs()) std::cout << "  " << spec.text() << "\n";
}

void time(const opsmith::Artifact& model, const std::vector<at::Tensor>& inputs,
          const Options& options) {
  const Overheard quiet;
  const auto once = [&] {
    model.run(inputs);
    if (!model.device().is_cpu()) {
      c10::impl::VirtualGuardImpl(model.device().type()).synchronizeDevice(0);
    }
  };
  for (int i = 0; i < options.warmup; ++i) once();
  std::vector<double> times;
  for (int i = 0; i < options.repeat; ++i) {
    const auto start = std::chrono::steady_clock::now();
    once();
    const std::chrono::duration<double, std::milli> taken =
        std::chrono::steady_clock::now() - start;
    times.push_back(taken.count());
  }
  std::sort(times.begin(), times.end());
  std::printf("%zu runs on %d threads: median %.4f ms, fastest %.4f ms, slowest %.4f ms\n",
              times.size(), at::get_num_threads(), times[times.size() / 2], times.front(),
              times.back());
}

void run(const Options& options) {
  if (options.threads > 0) at::set_num_threads(options.threads);
  const opsmith::Artifact model(options.folder);
  if (options.describe) return describe(model);
  std::vector<at::Tensor> inputs;
  for (const std::string& path : options.inputs) add(path, model, inputs);
  const std::vector<at::Tensor> outputs = call(model, inputs);
  for (size_t i = 0; i < outputs.size(); ++i) {
    std::cout << model.outputs().at(i).name << ": "
              << opsmith::detail::dtype_name(outputs[i].scalar_type()) << " "
              << opsmith::detail::shape_text(outputs[i].sizes()) << "\n";
  }
  if (!options.output.empty()) write(options.output, outputs);
  if (!options.written.empty()) write(options.written, inputs);
  if (options.repeat > 0) time(model, inputs, options);
}

// Print the error as one line, since scripts read lines.
int fail(Exit code, std::string message) {
  for (size_t at; (at = message.find('\n')) != message.npos;) {
    const size_t end = std::min(message.find_first_not_of(" \n", at), message.size());
    message.replace(at, end - at, end == message.size() ? "" : " | ");
  }
  std::cerr << "opsmith-run: " << message << std::endl;
  return code;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    const Options options = parse(argc, argv);
    if (options.help) {
      std::cout << usage;
    } else {
      run(options);
    }
    return kDone;
  } catch (const UsageError& error) {
    return fail(kUsage, std::string(error.what()) + " (--help says more)");
  } catch (const opsmith::LibraryError& error) {
    return fail(kLibrary, error.what());
  } catch (const opsmith::ArtifactError& error) {
    return fail(kArtifact, error.what());
  } catch (const FileError& error) {
    return fail(kFile, error.what());
  } catch (const opsmith::ArgumentError& error) {
    return fail(kInputs, error.what());
  } catch (const std::exception& error) {
    return fail(kFailed, error.what());
  }
}
