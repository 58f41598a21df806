// The types of a hosted call: arguments arrive as plain structs, which the host has read from its
// callers' values, and the host allocates the results.
#pragma once

#include <opsmith/detail/adapter.h>
#include <opsmith/hosted/copy.h>
#include <opsmith/hosted/host.h>

#include <optional>

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

template <>
class Argument<const DLTensor*> {
 public:
  explicit Argument(const opsmith_argument& given) : given_(detail::items<DLTensor>(given)) {}

  const DLTensor* raw() {
    if (given_ == nullptr) return nullptr;
    view_ = *given_;
    return &view_;
  }
  void make_contiguous(const char* name) {
    if (given_ != nullptr && !detail::is_contiguous(view_)) copy_.take(view_, name);
  }
  // Copies this argument, which is only read, if it overlaps one that is written.
  template <typename Written>
  void keep_from(const Written& other, const char*, const char* name, const char*) {
    if (given_ != nullptr && other.meets(view_)) copy_.take(view_, name);
  }

 protected:
  const DLTensor* given_;
  DLTensor view_{};
  Copy copy_;
};

template <>
class Argument<DLTensor*> : public Argument<const DLTensor*> {
 public:
  using Argument<const DLTensor*>::Argument;

  void begin_write(const char* op, const char* name) const {
    if (given_ != nullptr) detail::require_own_elements(op, name, *given_);
  }
  // Returns whether the memory that another tensor spans meets that of this one.
  bool meets(const DLTensor& other) const {
    return given_ != nullptr && detail::spans_meet(other, view_);
  }
  // Refuses the call if another written tensor, an item of a list or -1, shares elements with it.
  void require_apart(const char* op, const char* name, const char* other_name,
                     const DLTensor& other, int64_t item) const {
    if (given_ != nullptr && detail::share_elements(other, view_)) {
      detail::refuse_shared(op, other_name, item, name, -1);
    }
  }
  template <typename Written>
  void keep_from(const Written& other, const char* op, const char* name,
                 const char* other_name) const {
    if (given_ != nullptr) other.require_apart(op, other_name, name, view_, -1);
  }
  void end_write() const {
    if (given_ != nullptr) copy_.give(*given_);
  }
};

template <>
class Argument<raw_tensors> {
 public:
  explicit Argument(const opsmith_argument& given)
      : count_(given.count),
        views_(detail::items<DLTensor>(given), detail::items<DLTensor>(given) + size()),
        copies_(size()) {}

  raw_tensors raw() const { return {count_, views_.data()}; }
  void make_contiguous(const char* name) {
    for (size_t i = 0; i < size(); ++i) {
      if (!detail::is_contiguous(views_[i])) copies_[i].take(views_[i], name);
    }
  }
  template <typename Written>
  void keep_from(const Written& other, const char*, const char* name, const char*) {
    for (size_t i = 0; i < size(); ++i) {
      if (other.meets(views_[i])) copies_[i].take(views_[i], name);
    }
  }

 protected:
  size_t size() const { return static_cast<size_t>(std::max<int64_t>(count_, 0)); }

  int64_t count_;
  std::vector<DLTensor> views_;
  std::vector<Copy> copies_;
};

// A list of arrays that are written; its functions do what those of an array do, for each.
template <>
class Argument<written_tensors> : public Argument<raw_tensors> {
 public:
  explicit Argument(const opsmith_argument& given)
      : Argument<raw_tensors>(given), given_(detail::items<DLTensor>(given)) {}

  void begin_write(const char* op, const char* name) {
    for (int64_t i = 0; i < count_; ++i) {
      detail::require_own_elements(op, detail::item_name(name, i).c_str(), given_[i]);
    }
    spans_.emplace(given_, count_);
    detail::require_apart(op, name, *spans_, count_);
  }
  bool meets(const DLTensor& other) const { return spans_->meet(other); }
  void require_apart(const char* op, const char* name, const char* other_name,
                     const DLTensor& other, int64_t item) const {
    detail::require_apart(op, other_name, other, item, name, *spans_);
  }
  template <typename Written>
  void keep_from(const Written& other, const char* op, const char* name,
                 const char* other_name) const {
    for (int64_t i = 0; i < count_; ++i) {
      other.require_apart(op, other_name, name, given_[i], i);
    }
  }
  void end_write() const {
    for (size_t i = 0; i < size(); ++i) copies_[i].give(given_[i]);
  }

 private:
  const DLTensor* given_;
  std::optional<detail::Spans> spans_;  // from begin_write on
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
