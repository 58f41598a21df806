// Value ranges of tensor arguments (Index, Between, Extent), checked on the CPU before a kernel
// reads memory. One pass without branches says whether all is well; only then is the culprit looked
// for.
#pragma once

#include <opsmith/detail/check.h>

namespace opsmith::detail {

// Fewer elements are read sooner than another thread is at work. That one has to wake up is no
// loss: the kernel that follows needs it too.
inline constexpr int64_t scan_grain = 1 << 16;

template <typename T>
inline constexpr bool is_integer = std::is_integral_v<T> && !std::is_same_v<T, bool>;

// A number as messages and limits see it.
template <typename T>
auto widen(T value) {
  if constexpr (is_integer<T>) {
    return static_cast<int64_t>(value);
  } else {
    return static_cast<double>(value);
  }
}

// The integers of type T that a range admits, as [low, high]; empty where low > high.
template <typename T>
struct Span {
  int64_t low = std::numeric_limits<T>::min();
  int64_t high = static_cast<int64_t>(std::numeric_limits<T>::max());

  explicit Span(const Range& range) {
    if (range.low.present) low = std::max(low, floor_limit(std::ceil(range.low.number), range.low));
    if (range.high.present) {
      int64_t limit = floor_limit(std::floor(range.high.number), range.high);
      if (range.exclusive && limit > std::numeric_limits<int64_t>::min()) --limit;
      high = std::min(high, limit);
    }
  }
  static int64_t floor_limit(double rounded, const Limit& limit) {
    if (!limit.floating) return limit.integer;
    if (rounded <= -9.2e18) return std::numeric_limits<int64_t>::min();
    if (rounded >= 9.2e18) return std::numeric_limits<int64_t>::max();
    return static_cast<int64_t>(rounded);
  }
};

template <typename T>
bool all_inside(const T* data, int64_t count, const Range& range) {
  if constexpr (is_integer<T>) {
    const Span<T> span(range);
    if (span.low > span.high) return count == 0;
    using U = std::make_unsigned_t<T>;
    const U low = static_cast<U>(span.low);
    const U width = static_cast<U>(static_cast<U>(span.high) - low);
    U widest = 0;
    for (int64_t i = 0; i < count; ++i) {
      const U offset = static_cast<U>(static_cast<U>(data[i]) - low);
      widest = offset > widest ? offset : widest;
    }
    return widest <= width;
  } else {
    const double low = range.low.present ? range.low.number : -HUGE_VAL;
    const double high = range.high.present ? range.high.number : HUGE_VAL;
    int outside = 0;
    for (int64_t i = 0; i < count; ++i) {
      const double value = static_cast<double>(data[i]);
      outside |= static_cast<int>(!(value >= low)) | static_cast<int>(!(value <= high));
    }
    return outside == 0;
  }
}

template <typename T>
bool runs_inside(const T* starts, const T* lengths, int64_t count, int64_t bound) {
  // start + length stays below 2^63 for narrower types, and is compared without overflow for int64.
  int64_t outside = 0;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t length = static_cast<int64_t>(lengths[i]);
    const int64_t start = static_cast<int64_t>(starts[i]);
    outside |= static_cast<int64_t>(length < 0) | static_cast<int64_t>(start > bound - length);
  }
  return outside == 0;
}

inline bool is_contiguous(const DLTensor& tensor) {
  int64_t expected = 1;
  bool contiguous = true;
  for (int32_t i = tensor.ndim - 1; i >= 0; --i) {
    if (tensor.shape[i] == 0) return true;
    contiguous &= tensor.shape[i] == 1 || tensor.strides[i] == expected;
    expected *= tensor.shape[i];
  }
  return contiguous;
}

inline int64_t numel(const DLTensor& tensor) {
  int64_t count = 1;
  for (int32_t i = 0; i < tensor.ndim; ++i) count *= tensor.shape[i];
  return count;
}

// Where the element at position `flat` (in the order of the indices) lies in memory.
inline int64_t offset_of(const DLTensor& tensor, int64_t flat) {
  int64_t offset = 0;
  for (int32_t i = tensor.ndim - 1; i >= 0; --i) {
    offset += flat % tensor.shape[i] * tensor.strides[i];
    flat /= tensor.shape[i];
  }
  return offset;
}

// An element's index as Python writes it: 17 for a vector, (1, 2) otherwise.
inline std::string index_text(const DLTensor& tensor, int64_t flat) {
  if (tensor.ndim <= 1) return show(flat);
  int64_t index[max_dims];
  for (int32_t i = tensor.ndim - 1; i >= 0; --i) {
    index[i] = flat % tensor.shape[i];
    flat /= tensor.shape[i];
  }
  return show(index, tensor.ndim);
}

// Whether `test(first, last)` holds on all pieces of [0, count).
template <typename Test>
bool everywhere(const Context& context, int64_t count, Test&& test) {
  if (count <= scan_grain) return test(0, count);
  std::atomic<bool> all{true};
  context.parallel_for(0, count, scan_grain, [&](int64_t first, int64_t last) {
    if (!test(first, last)) all.store(false, std::memory_order_relaxed);
  });
  return all.load();
}

template <typename T, int N, int V>
OPSMITH_COLD void report_value(const Binder<N, V>& bound, const char* name, const DLTensor& tensor,
                               int64_t flat, const Range& range) {
  const T value = static_cast<const T*>(tensor.data)[offset_of(tensor, flat)];
  std::string text = join("argument '", name, "' has value ", show(widen(value)), " at index ",
                          index_text(tensor, flat), ", expected ", range.text(), ".");
  bound.fail(std::move(text));
}

// Throws call_error for the first element of `tensor` that `range` does not admit.
template <typename T, int N, int V>
void check_values(const Context& context, const Binder<N, V>& bound, const char* name,
                  const DLTensor& tensor, const Range& range) {
  const int64_t count = numel(tensor);
  const T* data = static_cast<const T*>(tensor.data);
  const bool contiguous = is_contiguous(tensor);
  const auto admits = [&](int64_t i) {
    return range.admits(widen(data[contiguous ? i : offset_of(tensor, i)]));
  };
  const bool good = everywhere(context, count, [&](int64_t first, int64_t last) {
    if (contiguous) return all_inside(data + first, last - first, range);
    bool all = true;
    for (int64_t i = first; i < last; ++i) all &= admits(i);
    return all;
  });
  if (good) return;
  for (int64_t i = 0; i < count; ++i) {
    if (!admits(i)) report_value<T>(bound, name, tensor, i, range);
  }
}

// The same for runs: 0 <= length and start + length <= bound, element by element.
template <typename T, int N, int V>
void check_runs(const Context& context, const Binder<N, V>& bound, const char* name,
                const DLTensor& lengths, const DLTensor& starts, const Range& range) {
  const int64_t count = numel(lengths);
  const int64_t limit = range.high.integer;
  const T* length = static_cast<const T*>(lengths.data);
  const T* start = static_cast<const T*>(starts.data);
  const bool contiguous = is_contiguous(lengths) && is_contiguous(starts);
  const auto admits = [&](int64_t i) {
    const T* first = start + (contiguous ? i : offset_of(starts, i));
    return runs_inside(first, length + (contiguous ? i : offset_of(lengths, i)), 1, limit);
  };
  const bool good = everywhere(context, count, [&](int64_t first, int64_t last) {
    if (contiguous) return runs_inside(start + first, length + first, last - first, limit);
    bool all = true;
    for (int64_t i = first; i < last; ++i) all &= admits(i);
    return all;
  });
  if (good) return;
  for (int64_t i = 0; i < count; ++i) {
    if (!admits(i)) report_value<T>(bound, name, lengths, i, range);
  }
}

}  // namespace opsmith::detail
