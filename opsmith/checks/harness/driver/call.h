// One call: the arguments that were sent, their memory, and the runtime.
#pragma once

#include "faults.h"
#include "memory.h"
#include "schedule.h"
#include "stream.h"

#include <opsmith/harness_runtime.h>

#include <deque>
#include <optional>
#include <string>
#include <vector>

namespace opsmith::harness {

struct TensorArgument {
  bool present = false;
  bool writable = false;
  std::string name;
  DLDataType dtype{};
  std::vector<int64_t> sizes;
  std::vector<int64_t> strides;
  uint64_t first = 0;  // offset of the first element in `bytes`
  std::vector<char> bytes;
};

// One argument of a case; the member of its kind holds the value.
struct Argument {
  bool present = true;
  std::vector<TensorArgument> tensors;
  std::vector<int64_t> integers;
  std::vector<double> numbers;
  std::vector<uint8_t> flags;
  std::string text;
};

inline TensorArgument read_tensor(Reader& in) {
  TensorArgument tensor;
  tensor.present = in.get<uint8_t>() != 0;
  if (!tensor.present) return tensor;
  tensor.writable = in.get<uint8_t>() != 0;
  tensor.name = in.text();
  tensor.dtype = {in.get<uint8_t>(), in.get<uint8_t>(), 1};
  const auto rank = in.get<uint32_t>();
  tensor.sizes = in.array<int64_t>(rank);
  tensor.strides = in.array<int64_t>(rank);
  tensor.first = in.get<uint64_t>();
  tensor.bytes = in.array<char>(in.get<uint64_t>());
  return tensor;
}

inline Argument read_argument(Reader& in) {
  Argument argument;
  const char kind = in.get<char>();
  const auto count = in.get<int64_t>();
  argument.present = count >= 0;
  const auto many = static_cast<uint64_t>(std::max<int64_t>(count, 0));
  switch (kind) {
    case 't':
      for (uint64_t i = 0; i < many; ++i) argument.tensors.push_back(read_tensor(in));
      break;
    case 'i':
      argument.integers = in.array<int64_t>(many);
      break;
    case 'f':
      argument.numbers = in.array<double>(many);
      break;
    case 'b':
      argument.flags = in.array<uint8_t>(many);
      break;
    default:
      argument.text.assign(in.take(many), many);
  }
  return argument;
}

struct Phase {
  Placement placement;
  uint64_t seed = 0;
  int32_t threads = 1;
  int32_t calls = 1;      // one after the other, on the same arguments
  bool together = false;  // all cases at once, each on a thread of its own
  // Index of a block of memory, in the order of arguments and results: the first case waits for the
  // others at its first access to this block. Negative: it does not wait.
  int32_t pause = -1;
};

class Running final : public Runtime {
 public:
  Running(const std::vector<Argument>& arguments, const Phase& phase)
      : arguments_(arguments), memory_(phase.placement), schedule_(phase.seed, phase.threads) {
    watched = &memory_;
  }

  // To be called before the kernel: makes the kernel wait at its first access to a block.
  void pause_at(Pause& pause, uint64_t block) {
    pause_ = &pause;
    pause_block_ = block;
  }

  void on_device(int32_t device_type) override { device_ = device_type; }
  void* stream() override { return device_ == device_cpu ? nullptr : this; }

  void align(uint64_t alignment) override { alignment_ = alignment; }
  void read(const DLTensor*& tensor) override {
    const Argument& argument = next();
    tensor = argument.present ? place(argument.tensors[0]) : nullptr;
  }
  void read(raw_tensors& tensors) override {
    const Argument& argument = next();
    tensors = {argument.present ? static_cast<int64_t>(argument.tensors.size()) : -1, nullptr};
    std::vector<DLTensor>& list = lists_.emplace_back();
    for (const TensorArgument& tensor : argument.tensors) list.push_back(*place(tensor));
    tensors.items = list.data();
  }
  void read(int64_t& number) override { number = next().integers[0]; }
  void read(double& number) override { number = next().numbers[0]; }
  void read(uint8_t& flag) override { flag = next().flags[0]; }
  void read(raw_string& text) override {
    const Argument& argument = next();
    text = {argument.present ? argument.text.data() : nullptr,
            static_cast<int64_t>(argument.text.size())};
  }
  void read(raw_ints& numbers) override { sequence(numbers, &Argument::integers); }
  void read(raw_floats& numbers) override { sequence(numbers, &Argument::numbers); }
  void read(raw_bools& flags) override { sequence(flags, &Argument::flags); }
  void read(raw_optional_int& number) override { maybe(number, &Argument::integers); }
  void read(raw_optional_float& number) override { maybe(number, &Argument::numbers); }
  void read(raw_optional_bool& flag) override { maybe(flag, &Argument::flags); }

  void name_results(const char* const* names, int32_t count) override {
    names_.assign(names, names + count);
  }
  const DLTensor* result(int32_t position, DLDataType dtype, int32_t rank,
                         const int64_t* sizes) override {
    const auto index = static_cast<size_t>(position);
    std::vector<int64_t> shape(sizes, sizes + rank);
    std::vector<int64_t> strides(shape.size(), 1);
    uint64_t count = 1;
    for (size_t i = shape.size(); i-- > 0;) {
      strides[i] = static_cast<int64_t>(std::max<uint64_t>(count, 1));
      count *= static_cast<uint64_t>(shape[i]);
    }
    const uint64_t element = dtype.bits / 8;
    const Block& block = memory_.allocate(names_.at(index), count * element, element, 64);
    results_.resize(names_.size());
    results_[index] = describe(block.data, dtype, std::move(shape), std::move(strides));
    prepare_pause(block);
    return results_[index];
  }

  void parallel_for(int64_t begin, int64_t end, Body body, void* state) override {
    schedule_.run(begin, end, body, state, memory_.blocks());
  }
  int32_t num_threads() override { return schedule_.threads(); }
  void* scratch(uint64_t bytes) override {
    return memory_.allocate(GuardedMemory::scratch_name, bytes, 1, 64).data;
  }

  uint64_t seed() override { return schedule_.seed(); }
  uint8_t fill() override { return memory_.fill(); }
  uint64_t memory_count() override { return memory_.blocks().size(); }
  harness::Memory memory(uint64_t number) override {
    const Block& block = memory_.blocks()[number];
    return {block.name.c_str(), block.data,    block.size,      block.element,
            block.guard,        block.written, block.read_only, block.vast};
  }
  void fault(const char* text, Place place, const char* also, Place also_place) override {
    std::string second = also;
    for (const auto& [said, where] : remarks_) {
      if (!second.empty() || said.find("no CUDA graph") == 0) continue;
      // A number that no lane brought, or nothing wrote, becomes an address.
      second = "after this, which may be the cause: " + said;
      also_place = where;
    }
    Writer out;
    out.put<uint8_t>('F');
    out.text(text);
    put_places(out, {place});
    out.text(second);
    put_places(out, {also_place});
    out.flush(report_file);
    _exit(3);
  }
  void remark(const char* text, Place place) override { remarks_.emplace_back(text, place); }

  void fail(const char* message) { message_ = message; }
  std::string contents() const { return memory_.contents(); }

  // Writes status, message, results, arguments that may be written, faults in `seen`, and remarks.
  void report(Writer& out, const std::vector<std::string>& seen) {
    out.put<uint8_t>('C');
    out.put<uint8_t>(message_ ? 1 : 0);
    out.text(message_.value_or(""));
    out.put<uint8_t>(schedule_.was_split() ? 1 : 0);
    out.put(static_cast<uint32_t>(results_.size()));
    for (const DLTensor* tensor : results_) {
      const bool sent = tensor != nullptr && !memory_.is_vast(tensor->data);
      out.put<uint8_t>(sent ? 1 : 0);
      if (!sent) continue;
      uint64_t bytes = tensor->dtype.bits / 8;
      out.put(tensor->dtype.code);
      out.put(tensor->dtype.bits);
      out.put(tensor->ndim);
      for (int32_t i = 0; i < tensor->ndim; ++i) {
        out.put(tensor->shape[i]);
        bytes *= static_cast<uint64_t>(tensor->shape[i]);
      }
      out.put(bytes);
      out.raw(tensor->data, bytes);
    }
    out.put(static_cast<uint32_t>(written_.size()));
    for (const Block& block : written_) {
      const uint64_t bytes = block.vast ? 0 : block.size;
      out.put(bytes);
      out.raw(block.data, bytes);
    }
    std::vector<std::string> all = memory_.overwritten();
    all.insert(all.end(), seen.begin(), seen.end());
    out.put(static_cast<uint32_t>(all.size()));
    for (const std::string& one : all) out.text(one);
    out.put(static_cast<uint32_t>(remarks_.size()));
    for (const auto& [text, place] : remarks_) {
      out.text(text);
      put_places(out, {place});
    }
    std::vector<std::string> untouched;
    for (const Block& block : memory_.blocks()) {
      if (block.vast && !block.touched()) untouched.push_back(block.name);
    }
    out.put(static_cast<uint32_t>(untouched.size()));
    for (const std::string& name : untouched) out.text(name);
  }

 private:
  const Argument& next() { return arguments_[position_++]; }

  void prepare_pause(const Block& block) {
    if (pause_ != nullptr && memory_.blocks().size() == pause_block_ + 1) pause_->arm(block);
  }

  const DLTensor* place(const TensorArgument& tensor) {
    const uint64_t element = tensor.dtype.bits / 8;
    const std::string name = "argument '" + tensor.name + "'";
    uint64_t last = 0;
    for (size_t i = 0; i < tensor.sizes.size(); ++i) {
      last += static_cast<uint64_t>((tensor.sizes[i] - 1) * tensor.strides[i]);
    }
    const uint64_t bytes = tensor.bytes.empty() ? 0 : (last + 1) * element;
    // A view may begin at any element of its storage.
    Block& block = memory_.allocate(name, bytes, element, std::max(element, alignment_));
    if (block.vast) {
      const int file = vast::file_of({tensor.bytes.begin(), tensor.bytes.end()});
      vast::map(block.pages, block.page_bytes, file, tensor.writable);
      close(file);
    } else if (bytes != 0) {
      std::memcpy(block.data, tensor.bytes.data(), bytes);
    }
    block.written = true;
    if (tensor.writable) {
      written_.push_back(block);
    } else {
      memory_.protect(block);
    }
    prepare_pause(block);
    return describe(block.data + tensor.first, tensor.dtype, tensor.sizes, tensor.strides);
  }

  const DLTensor* describe(char* data, DLDataType dtype, std::vector<int64_t> sizes,
                           std::vector<int64_t> strides) {
    std::vector<int64_t>& shape = numbers_.emplace_back(std::move(sizes));
    std::vector<int64_t>& steps = numbers_.emplace_back(std::move(strides));
    return &tensors_.emplace_back(DLTensor{data,
                                           {device_, 0},
                                           static_cast<int32_t>(shape.size()),
                                           dtype,
                                           shape.data(),
                                           steps.data(),
                                           0});
  }

  template <typename Raw, typename Values>
  void sequence(Raw& raw, Values Argument::* values) {
    const Argument& argument = next();
    const auto& items = argument.*values;
    raw = {argument.present ? static_cast<int64_t>(items.size()) : -1, items.data()};
  }
  template <typename Raw, typename Values>
  void maybe(Raw& raw, Values Argument::* values) {
    const Argument& argument = next();
    raw = {};
    if (argument.present) raw = {1, (argument.*values)[0]};
  }

  const std::vector<Argument>& arguments_;
  size_t position_ = 0;
  int32_t device_ = device_cpu;
  uint64_t alignment_ = 1;
  GuardedMemory memory_;
  Schedule schedule_;
  std::optional<std::string> message_;
  std::deque<DLTensor> tensors_;
  std::deque<std::vector<DLTensor>> lists_;
  std::deque<std::vector<int64_t>> numbers_;
  std::vector<std::string> names_;
  std::vector<const DLTensor*> results_;
  std::vector<Block> written_;
  std::vector<std::pair<std::string, Place>> remarks_;
  Pause* pause_ = nullptr;
  uint64_t pause_block_ = 0;
};

}  // namespace opsmith::harness
