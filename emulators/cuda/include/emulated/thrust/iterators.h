// Thrust's iterators, operators and execution policies.
#pragma once

#include <emulated/algorithms.h>
#include <cuda/functional>

#include <functional>
#include <iterator>
#include <utility>

namespace thrust {

// --- iterators -----------------------------------------------------------------------------------

// A position in memory of the device. The host does not follow it.
template <typename T>
class device_ptr {
 public:
  using iterator_category = std::random_access_iterator_tag;
  using value_type = std::remove_cv_t<T>;
  using difference_type = ptrdiff_t;
  using pointer = T*;
  using raw_pointer = T*;
  using reference = T&;
  device_ptr() = default;
  explicit device_ptr(T* data) : data_(data) {}
  template <typename U, typename = std::enable_if_t<std::is_convertible_v<U*, T*>>>
  device_ptr(const device_ptr<U>& other) : data_(other.get()) {}
  T* get() const { return data_; }
  device_ptr operator+(ptrdiff_t by) const { return device_ptr(data_ + by); }
  device_ptr operator-(ptrdiff_t by) const { return device_ptr(data_ - by); }
  ptrdiff_t operator-(const device_ptr& other) const { return data_ - other.data_; }
  device_ptr& operator+=(ptrdiff_t by) {
    data_ += by;
    return *this;
  }
  device_ptr& operator++() { return *this += 1; }
  bool operator==(const device_ptr& other) const { return data_ == other.data_; }
  bool operator!=(const device_ptr& other) const { return data_ != other.data_; }

 private:
  T* data_ = nullptr;
};

template <typename T>
T* raw_pointer_cast(device_ptr<T> position) {
  return position.get();
}
template <typename T>
T* raw_pointer_cast(T* position) {
  return position;
}
template <typename T>
device_ptr<T> device_pointer_cast(T* position) {
  return device_ptr<T>(position);
}

namespace detail {

// An iterator that computes its values: Self::at(i) is the value i steps on.
template <typename Self, typename T>
class Computed {
 public:
  using iterator_category = std::random_access_iterator_tag;
  using value_type = T;
  using difference_type = ptrdiff_t;
  using pointer = const T*;
  using reference = T;
  T operator[](ptrdiff_t by) const { return self().at(by + at_); }
  T operator*() const { return self().at(at_); }
  Self operator+(ptrdiff_t by) const {
    Self moved = self();
    moved.at_ += by;
    return moved;
  }
  Self operator-(ptrdiff_t by) const { return *this + -by; }
  ptrdiff_t operator-(const Computed& other) const { return at_ - other.at_; }
  Self& operator++() {
    ++at_;
    return static_cast<Self&>(*this);
  }

 private:
  const Self& self() const { return static_cast<const Self&>(*this); }
  ptrdiff_t at_ = 0;
};

}  // namespace detail

template <typename T>
class counting_iterator : public detail::Computed<counting_iterator<T>, T> {
 public:
  explicit counting_iterator(T first = T{}) : first_(first) {}
  T at(ptrdiff_t by) const { return static_cast<T>(first_ + static_cast<T>(by)); }
  // The distance is that of the numbers.
  ptrdiff_t operator-(const counting_iterator& other) const {
    return static_cast<ptrdiff_t>(**this) - static_cast<ptrdiff_t>(*other);
  }
  using detail::Computed<counting_iterator<T>, T>::operator-;

 private:
  T first_;
};
template <typename T>
counting_iterator<T> make_counting_iterator(T first) {
  return counting_iterator<T>(first);
}

template <typename T>
class constant_iterator : public detail::Computed<constant_iterator<T>, T> {
 public:
  explicit constant_iterator(T value) : value_(value) {}
  T at(ptrdiff_t) const { return value_; }

 private:
  T value_;
};
template <typename T>
constant_iterator<T> make_constant_iterator(T value) {
  return constant_iterator<T>(value);
}

template <typename Function, typename Iterator>
using transformed =
    std::decay_t<decltype(std::declval<Function&>()(std::declval<emulated::ItemOf<Iterator>>()))>;

template <typename Function, typename Iterator>
class transform_iterator : public detail::Computed<transform_iterator<Function, Iterator>,
                                                   transformed<Function, Iterator>> {
 public:
  transform_iterator(Iterator base, Function function) : base_(base), function_(function) {}
  auto at(ptrdiff_t by) const {
    Function function = function_;
    return function(emulated::raw(base_)[by]);
  }

 private:
  Iterator base_;
  Function function_;
};
template <typename Function, typename Iterator>
transform_iterator<Function, Iterator> make_transform_iterator(Iterator base, Function function) {
  return {base, function};
}

// --- operators -----------------------------------------------------------------------------------

using ::cuda::maximum;
using ::cuda::minimum;

using std::divides;
using std::equal_to;
using std::greater;
using std::greater_equal;
using std::less;
using std::less_equal;
using std::logical_and;
using std::logical_not;
using std::logical_or;
using std::minus;
using std::multiplies;
using std::negate;
using std::not_equal_to;
using std::plus;

template <typename T>
struct identity {
  T operator()(const T& a) const { return a; }
};

using std::make_pair;
using std::pair;

// --- execution policies --------------------------------------------------------------------------

namespace detail {

struct OnDevice {};
struct OnHost {};
struct OnStream {
  cudaStream_t stream;
};

// The place to run, and the line of the algorithm's call, where a policy of the user's is
// converted.
struct Policy {
  cudaStream_t stream = nullptr;
  opsmith_place place;
  bool host = false;
  Policy(const OnDevice&, opsmith_place called = emulated::here()) : place(called) {}
  Policy(const OnStream& on, opsmith_place called = emulated::here())
      : stream(on.stream), place(called) {}
  Policy(const OnHost&, opsmith_place called) : place(called), host(true) {}
};

template <typename T>
inline constexpr bool is_policy = std::is_convertible_v<T, Policy>;
template <typename T>
inline constexpr bool is_for_device = false;
template <typename T>
inline constexpr bool is_for_device<device_ptr<T>> = true;
template <typename F, typename It>
inline constexpr bool is_for_device<transform_iterator<F, It>> = is_for_device<It>;

// Refuses to run on the host with memory of the device.
template <typename Argument>
void check_host(const char* what, const Argument& argument, opsmith_place place) {
  if constexpr (std::is_pointer_v<Argument>) {
    if constexpr (!std::is_function_v<std::remove_pointer_t<Argument>>) {
      emulated::host_runs(what, argument, place);
    }
  }
}

template <typename... Arguments>
Policy implied(const char* what, opsmith_place place, const Arguments&... arguments) {
  if constexpr ((is_for_device<Arguments> || ...)) return {OnDevice(), place};
  (check_host(what, arguments, place), ...);
  return {OnHost(), place};
}

}  // namespace detail

inline constexpr detail::OnDevice device;
inline constexpr detail::OnHost host;

namespace cuda {

struct Par : detail::OnDevice {
  detail::OnStream on(cudaStream_t stream) const { return {stream}; }
  // Memory for intermediate results is this emulation's own.
  template <typename Allocator>
  Par operator()(const Allocator&) const {
    return {};
  }
};
inline constexpr Par par, par_nosync;

}  // namespace cuda

}  // namespace thrust
