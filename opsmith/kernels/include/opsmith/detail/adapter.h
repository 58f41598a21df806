// The common parts of adapters, the code between a runtime and a kernel.
//
// templates/anatomy.cpp.j2 writes the steps of a call; each runtime implements them in a namespace
// of its own, with three types:
//
//   Argument<Raw>  an argument as the runtime passes it. Raw is its type in the operator's `_raw`
//                  struct, but for what the operator writes: `DLTensor*` stands for a tensor, and
//                  `written_tensors` for a list.
//     raw()                 the value for the struct, before anything is compared
//     make_contiguous(name)  for tensors, in a runtime whose tensors may have strides
//     begin_write(op, name) for written tensors, before the kernel: checks that the tensor can be
//                           written, and chooses the memory to write into. The tensors of a list
//                           are compared with each other, too
//     memory()              for written tensors, in a runtime where two may share memory
//     keep_from(memory, op, name, other_name)  for tensors, in such a runtime: makes sure that
//                           writing into the memory of another one does not change this one
//     end_write()           for written tensors, after the kernel
//   Result(call, position)
//     allocate(sizes, ndim, dtype)   the result's memory
//     allocated()                    whether it is allocated
//   Call           a CallContext: the runtime's services for the kernel
#pragma once

#include <opsmith/detail/overlap.h>
#include <opsmith/detail/values.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

namespace opsmith {

// The type that stands for a `raw_tensors` whose tensors the operator writes.
struct written_tensors;

}  // namespace opsmith

namespace opsmith::detail {

// raw_optional_int and similar types.
template <typename Raw>
concept OptionalNumber = requires(Raw raw) { raw.present; };

// raw_ints and similar types.
template <typename Raw>
concept Sequence = requires(Raw raw) {
  raw.items;
  requires !std::is_same_v<Raw, raw_tensors>;
};

template <Sequence Raw>
using item_of = std::remove_cvref_t<decltype(*Raw::items)>;

// The part of a call's Context that is the same for all runtimes: memory on the host, errors,
// results that the kernel allocates, and how the thread computes.
class CallContext {
 public:
  CallContext(const CallContext&) = delete;
  CallContext& operator=(const CallContext&) = delete;
  ~CallContext() {
    while (blocks_ != nullptr) std::free(std::exchange(blocks_, blocks_->next));
  }

  const opsmith_context* context() const { return &context_; }
  const std::string& message() const { return message_; }

  // Lets the kernel allocate results: `allocate(position, dtype, ndim, sizes)` returns a DLTensor*,
  // or throws.
  template <typename Allocate>
  void allocate_by(Allocate& allocate) {
    allocate_ = &allocate;
    context_.allocate = [](void* self, int32_t result, DLDataType dtype, int32_t ndim,
                           const int64_t* sizes, DLTensor* tensor) -> int32_t {
      CallContext& call = *static_cast<CallContext*>(self);
      try {
        *tensor = *(*static_cast<Allocate*>(call.allocate_))(result, dtype, ndim, sizes);
        return 0;
      } catch (const std::exception& error) {
        call.message_ = error.what();
        return 1;
      }
    };
  }

  // Throws the kernel's error if it failed. `arguments` is the Binder of the call.
  template <typename Arguments>
  void finish(int32_t status, const char* op, const Arguments& arguments) const {
    if (status == no_such_dtypes) throw call_error(join(op, ": ", arguments.chosen_by(), message_));
    if (status != 0) [[unlikely]]
      throw call_error(join(op, ": ", message_));
  }

 protected:
  CallContext() {
    context_.self = this;
    context_.scratch = [](void* self, uint64_t bytes) {
      return static_cast<CallContext*>(self)->host_memory(bytes);
    };
    context_.allocate = [](void* self, int32_t, DLDataType, int32_t, const int64_t*,
                           DLTensor*) -> int32_t {
      static_cast<CallContext*>(self)->message_ =
          "no result of this operator is allocated by the kernel";
      return 1;
    };
    context_.fail = [](void* self, const char* message, uint64_t size) {
      static_cast<CallContext*>(self)->message_.assign(message, size);
    };
  }

  // Aligned to 64 bytes, freed after the call.
  void* host_memory(uint64_t bytes) {
    if (bytes > UINT64_MAX - 128) return nullptr;
    void* memory = std::aligned_alloc(64, sizeof(Block) + (bytes + 63) / 64 * 64);
    if (memory == nullptr) return nullptr;
    const std::lock_guard<std::mutex> lock(mutex_);
    blocks_ = new (memory) Block{blocks_};
    return static_cast<char*>(memory) + sizeof(Block);
  }

  opsmith_context context_{};
  std::mutex mutex_;

 private:
  struct alignas(64) Block {
    Block* next;
  };

  const ComputeAs computing_;
  std::string message_;
  void* allocate_ = nullptr;
  Block* blocks_ = nullptr;
};

// See `keep_from` above.
template <typename Argument, typename Other>
void keep_apart(Argument& argument, const Other& other, const char* op, const char* name,
                const char* other_name) {
  if constexpr (requires { argument.keep_from(other.memory(), op, name, other_name); }) {
    argument.keep_from(other.memory(), op, name, other_name);
  }
}

// A tensor argument, or a list of tensors, in a runtime whose tensors may have strides and share
// memory. `Given` is a tensor of the runtime's, and a contiguous copy if the kernel needs it:
//
//   describe(written, view)    describes it; returns whether there is one
//   require_writable(op, name, item, view)
//   copy(written, view, name)  makes `view` describe a copy, unless it does so already
//   give_back()                copies the elements of the copy, if there is one, to the original
template <bool written, typename Given, bool is_list>
class Tensors {
 public:
  explicit Tensors(Given given) : count_(1) { given_[0] = std::move(given); }
  // Several tensors; a count of -1 stands for None.
  template <typename Item>
  Tensors(const Item* items, int64_t count)
      : count_(count),
        given_(std::make_unique<Given[]>(static_cast<size_t>(std::max<int64_t>(count, 0)))),
        views_(std::make_unique<DLTensor[]>(static_cast<size_t>(std::max<int64_t>(count, 0)))) {
    for (int64_t i = 0; i < count; ++i) given_[at(i)] = Given(items[i]);
  }

  auto raw() {
    bool present = true;
    for (int64_t i = 0; i < count_; ++i) {
      present = given_[at(i)].describe(written, views_[at(i)]);
      if (!present) views_[at(i)].ndim = -1;
    }
    if constexpr (is_list) {
      return raw_tensors{count_, views_.get()};
    } else {
      if (!present) count_ = 0;
      return present ? static_cast<const DLTensor*>(&views_[0]) : nullptr;
    }
  }
  void make_contiguous(const char* name, uintptr_t alignment = 1) {
    for (int64_t i = 0; i < count_; ++i) {
      const DLTensor& view = views_[at(i)];
      const bool aligned = reinterpret_cast<uintptr_t>(view.data) % alignment == 0;
      if (!aligned || !is_contiguous(view)) copy(i, name);
    }
  }
  // Copies tensors that are only read and lie in written memory; refuses written ones that do.
  void keep_from(const Written& memory, const char* op, const char* name, const char* other_name) {
    for (int64_t i = 0; i < count_; ++i) {
      if constexpr (written) {
        memory.require_apart(op, other_name, name, views_[at(i)], is_list ? i : -1);
      } else if (memory.meets(views_[at(i)])) {
        copy(i, name);
      }
    }
  }
  void begin_write(const char* op, const char* name) {
    for (int64_t i = 0; i < count_; ++i) {
      given_[at(i)].require_writable(op, name, is_list ? i : -1, views_[at(i)]);
    }
    memory_.begin(op, name, &views_[0], count_, is_list);
  }
  const Written& memory() const { return memory_; }
  void end_write() {
    for (int64_t i = 0; i < count_; ++i) given_[at(i)].give_back();
  }

 private:
  static size_t at(int64_t i) { return static_cast<size_t>(i); }
  void copy(int64_t i, const char* name) { given_[at(i)].copy(written, views_[at(i)], name); }

  template <typename T>
  using Several = std::conditional_t<is_list, std::unique_ptr<T[]>, std::array<T, 1>>;
  int64_t count_;
  Several<Given> given_;
  Several<DLTensor> views_;
  Written memory_;
};

template <typename Result>
void require_allocated(const Result& result, const char* op, const char* name) {
  if (!result.allocated()) {
    throw call_error(join(op, ": the kernel returned without allocating the result '", name, "'"));
  }
}

// Runs `body`. Every exception becomes a call_error, whose message begins with the operator's name.
template <typename Body>
void named(const char* op, Body&& body) {
  try {
    body();
  } catch (const call_error&) {
    throw;
  } catch (const std::exception& error) {
    throw call_error(join(op, ": ", error.what()));
  } catch (...) {
    throw call_error(join(op, ": something that is not a std::exception was thrown"));
  }
}

// The same for a runtime that exceptions must not reach: returns the message, empty on success.
template <typename Body>
std::string failure(const char* op, Body&& body) noexcept {
  try {
    named(op, body);
    return {};
  } catch (const call_error& error) {
    return error.what();
  }
}

}  // namespace opsmith::detail
