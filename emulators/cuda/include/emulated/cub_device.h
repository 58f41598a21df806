// CUB's algorithms of the whole device, with temporary storage: a call with a null pointer says how
// many bytes a call with storage needs.
#pragma once

#include <emulated/algorithms.h>
#include <emulated/cub.h>

#include <iterator>
#include <limits>

namespace cub {

namespace detail {

namespace emulated = emulated;

// Holds what an algorithm is called with, besides its own arguments.
struct Request {
  const char* what;
  void* storage;
  size_t& bytes;
  cudaStream_t stream;
  opsmith_place place;

  // Runs `work` with storage of `needed` bytes, or says how many these are.
  template <typename Work>
  cudaError_t run(uint64_t items, size_t each, Work work) const {
    // The content of the storage before and after is nobody's.
    const size_t needed = 256 + items * each;
    if (storage == nullptr) {
      emulated::asks_for_storage(what, place);
      bytes = needed;
      return cudaSuccess;
    }
    emulated::check_stream(stream, what, place);
    emulated::takes_storage(what, bytes, needed, place);
    unsigned char* const data = static_cast<unsigned char*>(storage);
    on_one_thread([=] { data[0] = data[needed - 1] = 0xff; });
    emulated::host_fills(storage, 0xff, needed, what, place);
    work();
    return cudaSuccess;
  }
  template <typename Body>
  void on_one_thread(Body body) const {
    emulated::on_device(what, 1, [=](uint64_t) mutable { body(); }, place);
  }
};

template <typename Number>
uint64_t count_of(Number items) {
  return items > Number{0} ? static_cast<uint64_t>(items) : 0;
}

template <typename In, typename Out, typename Operator, typename Value>
cudaError_t reduce(const Request& request, In in, Out out, uint64_t items, Operator combine,
                   Value initial) {
  return request.run(items / 64, 8, [&] {
    request.on_one_thread([=]() mutable {
      out[0] = emulated::folded(items, initial, [&](uint64_t i) { return in[i]; }, combine);
    });
  });
}

// The first of equal values.
template <typename In, typename Out, typename Operator>
cudaError_t extreme(const Request& request, In in, Out out, uint64_t items, Operator combine,
                    emulated::ItemOf<In> of_none) {
  using Pair = KeyValuePair<int, emulated::ItemOf<In>>;
  return request.run(items / 64, 16, [&] {
    const auto pair = [=](uint64_t i) { return Pair(static_cast<int>(i), in[i]); };
    request.on_one_thread([=]() mutable {
      out[0] = items == 0 ? Pair(1, of_none) : emulated::folded(items, pair, combine);
    });
  });
}

template <typename In, typename Out, typename Operator, typename Value>
cudaError_t scan(const Request& request, In in, Out out, uint64_t items, Operator combine,
                 Value initial, bool inclusive) {
  return request.run(items / 64, 16, [&] {
    emulated::check_apart(request.what, in, items, out, items, true, request.place);
    request.on_one_thread([=]() mutable {
      emulated::scanned(
          items, inclusive ? nullptr : &initial, inclusive, [&](uint64_t i) { return in[i]; },
          [&](uint64_t i, const Value& value) { out[i] = value; }, combine);
    });
  });
}

// Writes the items that `keeps(i)`, and how many they are.
template <typename In, typename Out, typename Count, typename Keeps>
cudaError_t select(const Request& request, In in, Out out, Count selected, uint64_t items,
                   Keeps keeps, bool in_place = false) {
  return request.run(items / 64, 8, [&] {
    emulated::check_apart(request.what, in, items, out, items, in_place, request.place);
    request.on_one_thread([=]() mutable {
      uint64_t count = 0;
      for (uint64_t i = 0; i < items; ++i) {
        if (keeps(i)) out[count++] = in[i];
      }
      selected[0] = static_cast<emulated::ItemOf<Count>>(count);
    });
  });
}

// A key's bits as a number in the same order, as CUB's radix sorts take it.
template <typename Key>
uint64_t radix(const Key& key, int begin, int end) {
  constexpr unsigned width = 8 * sizeof(Key);
  constexpr uint64_t sign = uint64_t{1} << (width - 1), all = sign | (sign - 1);
  uint64_t bits = emulated::to_bits(key);
  if constexpr (std::is_integral_v<Key>) {
    if constexpr (std::is_signed_v<Key>) bits ^= sign;
  } else {
    if (bits == sign) bits = 0;  // -0 and 0 are equal
    bits = (bits & sign) != 0 ? ~bits & all : bits ^ sign;
  }
  const auto count = static_cast<unsigned>(end - begin);
  bits >>= begin;
  return count >= 64 ? bits : bits & ((uint64_t{1} << count) - 1);
}

template <typename Key, typename Values, typename ValuesOut>
cudaError_t radix_sort(const Request& request, const Key* keys, Key* keys_out, Values values,
                       ValuesOut values_out, uint64_t items, int begin, int end, bool descending) {
  return request.run(items, sizeof(Key), [&] {
    emulated::check_apart(request.what, keys, items, keys_out, items, false, request.place);
    emulated::check_apart(request.what, values, items, values_out, items, false, request.place);
    const auto less = [=](const Key& a, const Key& b) {
      const uint64_t left = radix(a, begin, end), right = radix(b, begin, end);
      return descending ? left > right : left < right;
    };
    emulated::sort_on_device(request.what, items, keys, keys_out, values, values_out, less, true,
                             request.place);
  });
}

template <typename In, typename Out, typename Begins, typename Ends, typename Operator,
          typename Value>
cudaError_t reduce_segments(const Request& request, In in, Out out, uint64_t segments,
                            Begins begins, Ends ends, Operator combine, Value initial) {
  return request.run(segments / 64, 8, [&] {
    emulated::on_device(
        request.what, segments,
        [=](uint64_t segment) mutable {
          const auto begin = static_cast<int64_t>(begins[segment]);
          const auto end = static_cast<int64_t>(ends[segment]);
          out[segment] = emulated::folded(
              static_cast<uint64_t>(end > begin ? end - begin : 0), initial,
              [&](uint64_t i) { return in[begin + int64_t(i)]; }, combine);
        },
        request.place);
  });
}

}  // namespace detail

// Two buffers of which one holds the input, and then either the output.
template <typename T>
struct DoubleBuffer {
  T* d_buffers[2] = {};
  int selector = 0;
  DoubleBuffer() = default;
  DoubleBuffer(T* current, T* alternate) : d_buffers{current, alternate} {}
  T* Current() const { return d_buffers[selector]; }
  T* Alternate() const { return d_buffers[selector ^ 1]; }
};

#define OPSMITH_CUB_REQUEST(name) \
  const detail::Request request { name, storage, bytes, stream, place }
#define OPSMITH_CUB_LAST cudaStream_t stream = nullptr, opsmith_place place = emulated::here()
#define OPSMITH_CUB_FIRST void *storage, size_t &bytes

struct DeviceReduce {
  template <typename In, typename Out, typename N, typename Operator, typename Value>
  static cudaError_t Reduce(OPSMITH_CUB_FIRST, In in, Out out, N items, Operator combine,
                            Value initial, OPSMITH_CUB_LAST) {
    OPSMITH_CUB_REQUEST("cub::DeviceReduce::Reduce");
    return detail::reduce(request, in, out, detail::count_of(items), combine, initial);
  }
#define OPSMITH_CUB_REDUCE(Name, reduction, Operator, initial)                                   \
  template <typename In, typename Out, typename N>                                               \
  static cudaError_t Name(OPSMITH_CUB_FIRST, In in, Out out, N items, OPSMITH_CUB_LAST) {        \
    using T = emulated::ItemOf<In>;                                                              \
    OPSMITH_CUB_REQUEST("cub::DeviceReduce::" #Name);                                            \
    return detail::reduction(request, in, out, detail::count_of(items), Operator(), T(initial)); \
  }
  OPSMITH_CUB_REDUCE(Sum, reduce, cub::Sum, T{})
  OPSMITH_CUB_REDUCE(Max, reduce, cub::Max, std::numeric_limits<T>::lowest())
  OPSMITH_CUB_REDUCE(Min, reduce, cub::Min, std::numeric_limits<T>::max())
  OPSMITH_CUB_REDUCE(ArgMax, extreme, cub::ArgMax, std::numeric_limits<T>::lowest())
  OPSMITH_CUB_REDUCE(ArgMin, extreme, cub::ArgMin, std::numeric_limits<T>::max())
#undef OPSMITH_CUB_REDUCE
};

struct DeviceScan {
  template <typename In, typename Out, typename N>
  static cudaError_t ExclusiveSum(OPSMITH_CUB_FIRST, In in, Out out, N items, OPSMITH_CUB_LAST) {
    OPSMITH_CUB_REQUEST("cub::DeviceScan::ExclusiveSum");
    return detail::scan(request, in, out, detail::count_of(items), cub::Sum(),
                        emulated::ItemOf<In>{}, false);
  }
  template <typename In, typename Out, typename N>
  static cudaError_t InclusiveSum(OPSMITH_CUB_FIRST, In in, Out out, N items, OPSMITH_CUB_LAST) {
    OPSMITH_CUB_REQUEST("cub::DeviceScan::InclusiveSum");
    return detail::scan(request, in, out, detail::count_of(items), cub::Sum(),
                        emulated::ItemOf<In>{}, true);
  }
  template <typename In, typename Out, typename Operator, typename Value, typename N>
  static cudaError_t ExclusiveScan(OPSMITH_CUB_FIRST, In in, Out out, Operator combine,
                                   Value initial, N items, OPSMITH_CUB_LAST) {
    OPSMITH_CUB_REQUEST("cub::DeviceScan::ExclusiveScan");
    return detail::scan(request, in, out, detail::count_of(items), combine, initial, false);
  }
  template <typename In, typename Out, typename Operator, typename N>
  static cudaError_t InclusiveScan(OPSMITH_CUB_FIRST, In in, Out out, Operator combine, N items,
                                   OPSMITH_CUB_LAST) {
    OPSMITH_CUB_REQUEST("cub::DeviceScan::InclusiveScan");
    return detail::scan(request, in, out, detail::count_of(items), combine, emulated::ItemOf<In>{},
                        true);
  }
};

struct DeviceSelect {
  template <typename In, typename Flags, typename Out, typename Count, typename N>
  static cudaError_t Flagged(OPSMITH_CUB_FIRST, In in, Flags flags, Out out, Count selected,
                             N items, OPSMITH_CUB_LAST) {
    OPSMITH_CUB_REQUEST("cub::DeviceSelect::Flagged");
    return detail::select(request, in, out, selected, detail::count_of(items),
                          [=](uint64_t i) { return static_cast<bool>(flags[i]); });
  }
  template <typename In, typename Out, typename Count, typename N, typename Predicate>
  static cudaError_t If(OPSMITH_CUB_FIRST, In in, Out out, Count selected, N items,
                        Predicate predicate, OPSMITH_CUB_LAST) {
    OPSMITH_CUB_REQUEST("cub::DeviceSelect::If");
    return detail::select(request, in, out, selected, detail::count_of(items),
                          [=](uint64_t i) mutable { return static_cast<bool>(predicate(in[i])); });
  }
  template <typename In, typename Out, typename Count, typename N>
  static cudaError_t Unique(OPSMITH_CUB_FIRST, In in, Out out, Count selected, N items,
                            OPSMITH_CUB_LAST) {
    OPSMITH_CUB_REQUEST("cub::DeviceSelect::Unique");
    return detail::select(request, in, out, selected, detail::count_of(items),
                          [=](uint64_t i) { return i == 0 || !(in[i] == in[i - 1]); });
  }
};

struct DeviceRadixSort {
#define OPSMITH_CUB_SORT(suffix, descending)                                                      \
  template <typename Key, typename N>                                                             \
  static cudaError_t SortKeys##suffix(OPSMITH_CUB_FIRST, const Key* keys, Key* keys_out, N items, \
                                      int begin = 0, int end = sizeof(Key) * 8,                   \
                                      OPSMITH_CUB_LAST) {                                         \
    OPSMITH_CUB_REQUEST("cub::DeviceRadixSort::SortKeys" #suffix);                                \
    return detail::radix_sort(request, keys, keys_out, nullptr, nullptr, detail::count_of(items), \
                              begin, end, descending);                                            \
  }                                                                                               \
  template <typename Key, typename Value, typename N>                                             \
  static cudaError_t SortPairs##suffix(                                                           \
      OPSMITH_CUB_FIRST, const Key* keys, Key* keys_out, const Value* values, Value* values_out,  \
      N items, int begin = 0, int end = sizeof(Key) * 8, OPSMITH_CUB_LAST) {                      \
    OPSMITH_CUB_REQUEST("cub::DeviceRadixSort::SortPairs" #suffix);                               \
    return detail::radix_sort(request, keys, keys_out, values, values_out,                        \
                              detail::count_of(items), begin, end, descending);                   \
  }                                                                                               \
  template <typename Key, typename N>                                                             \
  static cudaError_t SortKeys##suffix(OPSMITH_CUB_FIRST, DoubleBuffer<Key>& keys, N items,        \
                                      int begin = 0, int end = sizeof(Key) * 8,                   \
                                      OPSMITH_CUB_LAST) {                                         \
    const cudaError_t done = SortKeys##suffix(storage, bytes, keys.Current(), keys.Alternate(),   \
                                              items, begin, end, stream, place);                  \
    if (storage != nullptr) keys.selector ^= 1;                                                   \
    return done;                                                                                  \
  }                                                                                               \
  template <typename Key, typename Value, typename N>                                             \
  static cudaError_t SortPairs##suffix(OPSMITH_CUB_FIRST, DoubleBuffer<Key>& keys,                \
                                       DoubleBuffer<Value>& values, N items, int begin = 0,       \
                                       int end = sizeof(Key) * 8, OPSMITH_CUB_LAST) {             \
    const cudaError_t done =                                                                      \
        SortPairs##suffix(storage, bytes, keys.Current(), keys.Alternate(), values.Current(),     \
                          values.Alternate(), items, begin, end, stream, place);                  \
    if (storage != nullptr) keys.selector ^= 1, values.selector ^= 1;                             \
    return done;                                                                                  \
  }
  OPSMITH_CUB_SORT(, false)
  OPSMITH_CUB_SORT(Descending, true)
#undef OPSMITH_CUB_SORT
};

struct DeviceSegmentedReduce {
  template <typename In, typename Out, typename N, typename Begins, typename Ends,
            typename Operator, typename Value>
  static cudaError_t Reduce(OPSMITH_CUB_FIRST, In in, Out out, N segments, Begins begins, Ends ends,
                            Operator combine, Value initial, OPSMITH_CUB_LAST) {
    OPSMITH_CUB_REQUEST("cub::DeviceSegmentedReduce::Reduce");
    return detail::reduce_segments(request, in, out, detail::count_of(segments), begins, ends,
                                   combine, initial);
  }
#define OPSMITH_CUB_REDUCE(Name, Operator, initial)                                                \
  template <typename In, typename Out, typename N, typename Begins, typename Ends>                 \
  static cudaError_t Name(OPSMITH_CUB_FIRST, In in, Out out, N segments, Begins begins, Ends ends, \
                          OPSMITH_CUB_LAST) {                                                      \
    using T = emulated::ItemOf<In>;                                                                \
    OPSMITH_CUB_REQUEST("cub::DeviceSegmentedReduce::" #Name);                                     \
    return detail::reduce_segments(request, in, out, detail::count_of(segments), begins, ends,     \
                                   Operator(), T(initial));                                        \
  }
  OPSMITH_CUB_REDUCE(Sum, cub::Sum, T{})
  OPSMITH_CUB_REDUCE(Max, cub::Max, std::numeric_limits<T>::lowest())
  OPSMITH_CUB_REDUCE(Min, cub::Min, std::numeric_limits<T>::max())
#undef OPSMITH_CUB_REDUCE
};

#undef OPSMITH_CUB_REQUEST
#undef OPSMITH_CUB_LAST
#undef OPSMITH_CUB_FIRST

}  // namespace cub
