// Checks constraints on the values of tensor arguments on the CPU, before a kernel reads memory.
// One pass tells whether all values fit; only if not, a second one finds the wrong value. The
// messages are those of opsmith/operators/core/value_checks.py; a test compares them.
#pragma once

#include <opsmith/detail/check.h>

namespace opsmith::detail {

// Fewer elements are read faster than another thread starts. Waking up a thread is no loss: the
// kernel that follows needs it too.
inline constexpr int64_t scan_grain = 1 << 16;

template <typename T>
inline constexpr bool is_integer = std::is_integral_v<T> && !std::is_same_v<T, bool>;

// Whether a caller drew the values for the declaration: their bits are no numbers of type T.
template <typename T>
#ifdef OPSMITH_EXACT
inline constexpr bool is_drawn = exact::is_number<T> || std::is_floating_point_v<T>;
#else
inline constexpr bool is_drawn = false;
#endif

// A number as limits represent it. No limit exceeds a signed 64-bit integer.
template <typename T>
auto widen(T value) {
  if constexpr (std::is_same_v<T, uint64_t>) {
    constexpr uint64_t most = std::numeric_limits<int64_t>::max();
    return static_cast<int64_t>(std::min(value, most));
  } else if constexpr (is_integer<T>) {
    return static_cast<int64_t>(value);
  } else {
    return static_cast<double>(value);
  }
}

// The integers of type T in a range, as [low, high]; empty if low > high.
template <typename T>
struct Span {
  int64_t low = std::numeric_limits<T>::min();
  int64_t high = static_cast<int64_t>(std::numeric_limits<T>::max());

  explicit Span(const Range& range) {
    if (range.low.present) low = std::max(low, floor_limit(std::ceil(range.low.number), range.low));
    if (range.above) low = std::max(low, range.low.integer + 1);
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
  if constexpr (std::is_same_v<T, uint64_t>) {
    return std::all_of(data, data + count, [&](T value) { return range.admits(widen(value)); });
  } else if constexpr (is_integer<T>) {
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
    double low = range.low.present ? range.low.number : -HUGE_VAL;
    if (range.above) low = std::nextafter(low, HUGE_VAL);
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

// The offset in memory of the element at position `flat` (in the order of the indices).
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

// Calls refuse(i) for each place i of [0, count) that is not admitted, the first one first. If
// `contiguous`, all_admitted(first, last) tells of a whole piece at once that nothing is refused.
template <typename Admits, typename Pieces, typename Refuse>
void require_all(const Context& context, int64_t count, bool contiguous, Admits&& admits,
                 Pieces&& all_admitted, Refuse&& refuse) {
  std::atomic<bool> good{true};
  const auto look = [&](int64_t first, int64_t last) {
    bool all = !contiguous || all_admitted(first, last);
    for (int64_t i = first; i < last && !contiguous; ++i) all &= admits(i);
    if (!all) good.store(false, std::memory_order_relaxed);
  };
  if (count <= scan_grain) {
    look(0, count);
  } else {
    context.parallel_for(0, count, scan_grain, look);
  }
  for (int64_t i = 0; i < count && !good; ++i) {
    if (!admits(i)) refuse(i);
  }
}

template <typename T>
T element(const DLTensor& tensor, bool contiguous, int64_t flat) {
  return static_cast<const T*>(tensor.data)[contiguous ? flat : offset_of(tensor, flat)];
}

// The numbers of a sequence as a tensor.
template <typename T>
class Line {
 public:
  Line(const T* items, int64_t count)
      : count_(count),
        tensor_(contiguous(const_cast<T*>(items), {device_cpu, 0}, {}, &count_, 1, &stride_)) {}
  operator const DLTensor&() const { return tensor_; }

 private:
  int64_t count_, stride_;
  DLTensor tensor_;
};

// For sequences, which are too short for threads.
inline const Context& without_threads() {
  static constexpr opsmith_context nothing{};
  static const Context context(&nothing);
  return context;
}

// The rows along the last dimension of a tensor.
struct Rows {
  int64_t count = 1;
  int64_t length;

  explicit Rows(const DLTensor& tensor, int32_t last = 1)
      : length(tensor.shape[tensor.ndim - last]) {
    for (int32_t i = 0; i < tensor.ndim - last; ++i) count *= tensor.shape[i];
  }
};

template <typename T, int N, int V, int D>
OPSMITH_COLD void report_value(const Binder<N, V, D>& bound, Where where, const DLTensor& tensor,
                               int64_t flat, const std::string& expected) {
  const T value = static_cast<const T*>(tensor.data)[offset_of(tensor, flat)];
  std::string shown;
  if constexpr (std::is_same_v<T, uint64_t>) {
    shown = show(value);
  } else {
    shown = show(widen(value));
  }
  std::string text = join("argument ", where.text(), " has value ", shown, " at index ",
                          index_text(tensor, flat), ", expected ", expected, ".");
  bound.fail(std::move(text));
}

// Throws call_error for the first element of `tensor` that is outside `range`.
template <typename T, int N, int V, int D>
void check_values(const Context& context, const Binder<N, V, D>& bound, Where where,
                  const DLTensor& tensor, const Range& range) {
  if constexpr (!is_drawn<T>) {
    const int64_t count = numel(tensor);
    const T* data = static_cast<const T*>(tensor.data);
    const bool contiguous = is_contiguous(tensor);
    const auto admits = [&](int64_t i) {
      return range.admits(widen(data[contiguous ? i : offset_of(tensor, i)]));
    };
    require_all(
        context, count, contiguous, admits,
        [&](int64_t first, int64_t last) { return all_inside(data + first, last - first, range); },
        [&](int64_t i) { report_value<T>(bound, where, tensor, i, range.text()); });
  }
}

// The same for runs: 0 <= length and start + length <= bound, element by element.
template <typename T, int N, int V, int D>
void check_runs(const Context& context, const Binder<N, V, D>& bound, Where where,
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
  const auto all_inside = [&](int64_t first, int64_t last) {
    return runs_inside(start + first, length + first, last - first, limit);
  };
  require_all(context, count, contiguous, admits, all_inside,
              [&](int64_t i) { report_value<T>(bound, where, lengths, i, range.text()); });
}

// The same for the whole numbers in one column of the last dimension.
template <typename T, int N, int V, int D>
void check_column(const Context& context, const Binder<N, V, D>& bound, Where where,
                  const DLTensor& tensor, const Column& column) {
  if constexpr (!is_drawn<T>) {
    const Rows rows(tensor);
    const bool contiguous = is_contiguous(tensor);
    const auto place = [&](int64_t row) { return row * rows.length + column.place; };
    const auto admits = [&](int64_t row) {
      return column.admits(widen(element<T>(tensor, contiguous, place(row))));
    };
    const auto at_once = [](int64_t, int64_t) { return false; };  // a column is not contiguous
    require_all(context, rows.count, false, admits, at_once, [&](int64_t row) {
      report_value<T>(bound, where, tensor, place(row), column.text());
    });
  }
}

template <typename T, int N, int V, int D>
void check_end(const Binder<N, V, D>& bound, Where where, const DLTensor& tensor, bool contiguous,
               const End& end, const char* which, bool last) {
  const Rows rows(tensor);
  if (!end.limit.present || rows.count == 0) return;
  if (rows.length == 0) {
    bound.fail(join("argument ", where.text(), " has no values, expected ", end.text(), " as the ",
                    which, " value."));
  }
  for (int64_t row = 0; row < rows.count; ++row) {
    const int64_t i = row * rows.length + (last ? rows.length - 1 : 0);
    const auto value = widen(element<T>(tensor, contiguous, i));
    if (!end.admits(value)) {
      bound.fail(join("argument ", where.text(), " has value ", show(value), " at index ",
                      index_text(tensor, i), ", expected ", end.text(), " as the ", which,
                      " value."));
    }
  }
}

// Whether each of `count` values may follow the one before it; without branches, to vectorise.
template <typename T>
bool in_order(const T* data, int64_t count, bool strict) {
  // Narrow types are compared without widening, which would keep their order anyway.
  int outside = 0;
  if (strict) {
    for (int64_t i = 1; i < count; ++i) outside |= static_cast<int>(!(data[i] > data[i - 1]));
  } else {
    for (int64_t i = 1; i < count; ++i) outside |= static_cast<int>(!(data[i] >= data[i - 1]));
  }
  return outside == 0;
}

// Throws call_error unless every row is sorted, and begins and ends with the values in `order`.
template <typename T, int N, int V, int D>
void check_order(const Context& context, const Binder<N, V, D>& bound, Where where,
                 const DLTensor& tensor, const Order& order) {
  if (is_drawn<T>) return;
  const bool contiguous = is_contiguous(tensor);
  check_end<T>(bound, where, tensor, contiguous, order.first, "first", false);
  check_end<T>(bound, where, tensor, contiguous, order.last, "last", true);
  const Rows rows(tensor);
  const auto at = [&](int64_t i) { return widen(element<T>(tensor, contiguous, i)); };
  // Whether the value at `i` may follow the one before it; the first of a row follows none.
  const auto follows = [&](int64_t i) {
    return i % rows.length == 0 || order.admits(at(i - 1), at(i));
  };
  const auto all_follow = [&](int64_t first, int64_t last) {
    bool all = true;
    const T* data = static_cast<const T*>(tensor.data);
    while (first < last) {
      // A piece may begin within a row: its first value follows one of the piece before.
      const int64_t row_end = std::min(last, (first / rows.length + 1) * rows.length);
      const int64_t begin = first % rows.length == 0 ? first : first - 1;
      all &= in_order(data + begin, row_end - begin, order.strict);
      first = row_end;
    }
    return all;
  };
  const int64_t count = rows.count * rows.length;
  require_all(context, count, contiguous, follows, all_follow, [&](int64_t i) {
    bound.fail(join("argument ", where.text(), " has value ", show(at(i)), " at index ",
                    index_text(tensor, i), " after ", show(at(i - 1)), " at index ",
                    index_text(tensor, i - 1), ", expected ", order.text(), "."));
  });
}

// The size of part `i`: a value, or the product of a shape.
template <typename T>
class PartSizes {
 public:
  PartSizes(const DLTensor& tensor, bool shapes)
      : tensor_(tensor),
        contiguous_(is_contiguous(tensor)),
        width_(shapes ? tensor.shape[tensor.ndim - 1] : 1) {}

  int64_t operator[](int64_t i) const {
    int64_t product = 1;
    for (int64_t k = 0; k < width_; ++k) {
      const auto size = static_cast<int64_t>(element<T>(tensor_, contiguous_, i * width_ + k));
      if (size == 0) return 0;
      product = saturating_mul(product, size);
    }
    return product;
  }

 private:
  const DLTensor& tensor_;
  bool contiguous_;
  int64_t width_;
};

// Throws call_error unless the sizes of every row add up to `sum`.
template <typename T, int N, int V, int D>
void check_sum(const Context&, const Binder<N, V, D>& bound, Where where, const DLTensor& tensor,
               const Sum& sum) {
  const int32_t last = sum.shapes ? 2 : 1;
  const Rows rows(tensor, last);
  const PartSizes<T> sizes(tensor, sum.shapes);
  for (int64_t row = 0; row < rows.count; ++row) {
    int64_t found = 0;
    for (int64_t i = 0; i < rows.length; ++i) {
      found = saturating_add(found, sizes[row * rows.length + i]);
    }
    if (sum.total.admits(found)) continue;
    DLTensor leading = tensor;
    leading.ndim -= last;
    const std::string in_row =
        leading.ndim == 0 ? std::string() : join(" in row ", index_text(leading, row));
    bound.fail(join("argument ", where.text(), " ", sum.text(found), in_row, ", expected ",
                    sum.total.text(), "."));
  }
}

// Throws call_error unless each value is the sum of the sizes before it.
template <typename T, int N, int V, int D>
void check_starts(const Context&, const Binder<N, V, D>& bound, Where where, const DLTensor& tensor,
                  const DLTensor& of, const Starts& starts) {
  const Rows rows(tensor);
  const PartSizes<T> sizes(of, starts.shapes);
  const bool contiguous = is_contiguous(tensor);
  for (int64_t row = 0; row < rows.count; ++row) {
    uint64_t begin = 0;  // wraps around, as PyTorch's sums do
    for (int64_t i = row * rows.length; i < (row + 1) * rows.length; ++i) {
      const auto value = static_cast<int64_t>(element<T>(tensor, contiguous, i));
      const auto expected = static_cast<int64_t>(begin);
      if (value != expected) {
        bound.fail(join("argument ", where.text(), " has value ", value, " at index ",
                        index_text(tensor, i), ", expected ", expected, ": ", starts.text(), "."));
      }
      begin += static_cast<uint64_t>(sizes[i]);
    }
  }
}

}  // namespace opsmith::detail
