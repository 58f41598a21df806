// The types of a hosted call: arguments arrive as plain structs, which the host has read from its
// callers' values, and the host allocates the results.
#pragma once

#include <opsmith/detail/adapter.h>
#include <opsmith/hosted/copy.h>
#include <opsmith/hosted/host.h>

namespace opsmith::hosted {

// The error of a kernel that failed. Other errors mean that an argument does not fit.
struct kernel_error : call_error {
  using call_error::call_error;
};
struct memory_error : call_error {
  using call_error::call_error;
};

// The argument for a number, several numbers, or a text.
template <typename Raw>
class Argument {
 public:
  explicit Argument(const opsmith_argument& given) : given_(given) {}

  Raw raw() const {
    if constexpr (detail::OptionalNumber<Raw>) {
      if (given_.count < 0) return {};
      return {1, *detail::items<decltype(Raw::value)>(given_)};
    } else if constexpr (detail::Sequence<Raw>) {
      return {given_.count, detail::items<detail::item_of<Raw>>(given_)};
    } else if constexpr (std::is_same_v<Raw, raw_string>) {
      if (given_.count < 0) return {nullptr, 0};
      return {detail::items<char>(given_), given_.count};
    } else {
      return *detail::items<Raw>(given_);
    }
  }

 private:
  const opsmith_argument& given_;
};

// A tensor of the caller's, or none, and a contiguous copy if the kernel needs it.
class Given {
 public:
  explicit Given(const DLTensor* tensor = nullptr) : tensor_(tensor) {}
  explicit Given(const DLTensor& tensor) : tensor_(&tensor) {}

  bool describe(bool, DLTensor& view) const {
    if (tensor_ != nullptr) view = *tensor_;
    return tensor_ != nullptr;
  }
  void require_writable(const char* op, const char* name, int64_t item,
                        const DLTensor& view) const {
    detail::require_own_elements(op, name, item, view);
  }
  void copy(bool, DLTensor& view, const char* name) { copy_.take(view, name); }
  void give_back() const { copy_.give(*tensor_); }

 private:
  const DLTensor* tensor_;
  Copy copy_;
};

template <>
class Argument<const DLTensor*> : public detail::Tensors<false, Given, false> {
 public:
  explicit Argument(const opsmith_argument& given)
      : Tensors(Given(detail::items<DLTensor>(given))) {}
};

template <>
class Argument<DLTensor*> : public detail::Tensors<true, Given, false> {
 public:
  explicit Argument(const opsmith_argument& given)
      : Tensors(Given(detail::items<DLTensor>(given))) {}
};

template <>
class Argument<raw_tensors> : public detail::Tensors<false, Given, true> {
 public:
  explicit Argument(const opsmith_argument& given)
      : Tensors(detail::items<DLTensor>(given), given.count) {}
};

template <>
class Argument<written_tensors> : public detail::Tensors<true, Given, true> {
 public:
  explicit Argument(const opsmith_argument& given)
      : Tensors(detail::items<DLTensor>(given), given.count) {}
};

// The Context of one call, with the host's threads and its machine's memory.
class Call : public detail::CallContext {
 public:
  // `reached`: set once all arguments are known to fit the declaration.
  Call(const Host& host, bool& reached) : host_(host), reached_(reached) {
    context_.num_threads = [](void* self) { return of(self).num_threads(of(self).self); };
    context_.parallel_for = [](void* self, int64_t begin, int64_t end, int64_t grain,
                               void (*body)(int64_t, int64_t, void*), void* state) {
      of(self).parallel_for(of(self).self, begin, end, grain, body, state);
    };
  }
  const Host& host() const { return host_; }

  template <typename Arguments>
  void finish(int32_t status, const char* op, const Arguments& arguments) const {
    reached_ = true;
    CallContext::finish(status, op, arguments);
  }

 private:
  static const Host& of(void* self) {
    return static_cast<Call*>(static_cast<CallContext*>(self))->host_;
  }

  const Host& host_;
  bool& reached_;
};

// A result of a call: an array that the host allocates.
class Result {
 public:
  Result(const Call& call, int32_t position) : host_(call.host()), position_(position) {}

  const DLTensor* allocate(const int64_t* sizes, int32_t ndim, DLDataType dtype) {
    tensor_ = host_.allocate(host_.self, position_, dtype, ndim, sizes);
    // The host raises its own error.
    if (tensor_ == nullptr) throw std::runtime_error("a result could not be allocated");
    return tensor_;
  }
  bool allocated() const { return tensor_ != nullptr; }

 private:
  const Host& host_;
  int32_t position_;
  const DLTensor* tensor_ = nullptr;
};

// Runs `body` for the host, into which no C++ exception may escape.
template <typename Body>
int32_t guarded(const char* op, const Host& host, Body&& body) noexcept {
  bool reached = false;
  bool memory = true;
  const std::string message = detail::failure(op, [&] {
    try {
      body(reached);
    } catch (const NoMemory&) {
      memory = false;
      throw;
    } catch (const std::bad_alloc&) {
      memory = false;
      throw std::runtime_error("there is no memory left");
    }
  });
  if (message.empty()) return done;
  host.fail(host.self, message.data(), message.size());
  return !memory ? out_of_memory : reached ? failed : refused;
}

}  // namespace opsmith::hosted
