// Thrust's algorithms. Those without an order of their items run a CUDA thread for each.
#pragma once

#include <emulated/thrust/iterators.h>

namespace thrust {

namespace detail {

using emulated::ItemOf;
using emulated::raw;
using emulated::Returned;
using emulated::Temporary;

template <typename Iterator>
uint64_t between(Iterator first, Iterator last) {
  const auto count = last - first;
  return count > 0 ? static_cast<uint64_t>(count) : 0;
}

// Calls body(i) for each item where the policy says.
template <typename Body>
void each(const Policy& policy, const char* what, uint64_t items, Body body) {
  if (policy.host) {
    const emulated::Unwatched host_memory;
    for (uint64_t i = 0; i < items; ++i) body(i);
    return;
  }
  emulated::check_stream(policy.stream, what, policy.place);
  emulated::on_device(what, items, body, policy.place);
}

// Writes value(i) to each item of `out`, and returns the end.
template <typename Out, typename Value>
Out written(const Policy& policy, const char* what, uint64_t items, Out out, Value value) {
  const auto to = raw(out);
  each(policy, what, items, [=](uint64_t i) mutable { to[i] = value(i); });
  return out + static_cast<ptrdiff_t>(items);
}

// The value that body(data) computes in one thread.
template <typename T, typename Body>
T returned(const Policy& policy, const char* what, Body body) {
  const Returned<T> result(what, policy.place);
  T* const data = result.data();
  each(policy, what, 1, [=](uint64_t) mutable { body(data); });
  return result.get();
}

template <typename T, typename Load, typename Operator>
T folded(const Policy& policy, const char* what, uint64_t items, T initial, Load load,
         Operator combine) {
  return returned<T>(policy, what, [=](T* result) mutable {
    *result = emulated::folded(
        items, initial, [&](uint64_t i) { return static_cast<T>(load(i)); }, combine);
  });
}

// Copies the items that `keeps(i)`, and returns how many these are.
template <typename In, typename Out, typename Keeps>
uint64_t kept(const Policy& policy, const char* what, In in, Out out, uint64_t items, Keeps keeps) {
  return returned<uint64_t>(policy, what, [=](uint64_t* result) mutable {
    uint64_t count = 0;
    for (uint64_t i = 0; i < items; ++i) {
      if (keeps(i)) out[count++] = in[i];
    }
    *result = count;
  });
}

template <typename Keys, typename Values, typename Less>
void sort(const Policy& policy, const char* what, uint64_t items, Keys keys, Values values,
          Less less, bool stable) {
  if (!policy.host) emulated::check_stream(policy.stream, what, policy.place);
  const emulated::Unwatched host_memory(policy.host);
  emulated::sort_on_device(what, items, keys, keys, values, values, less, stable, policy.place);
}

template <typename Value, typename In, typename Out, typename Operator>
void scan(const Policy& policy, const char* what, In in, Out out, uint64_t items,
          const Value* initial, Operator combine) {
  emulated::check_apart(what, in, items, out, items, true, policy.place);
  const bool exclusive = initial != nullptr;
  const Value begin = exclusive ? *initial : Value{};
  each(policy, what, 1, [=](uint64_t) mutable {
    emulated::scanned(
        items, exclusive ? &begin : nullptr, !exclusive, [&](uint64_t i) { return in[i]; },
        [&](uint64_t i, const Value& value) { out[i] = value; }, combine);
  });
}

}  // namespace detail

// Declares the form of an algorithm without a policy, or on the host. Not inlined: the return
// address identifies the user's line.
#define OPSMITH_THRUST_ALGORITHM(name)                                                       \
  template <typename First, typename... Rest>                                                \
    requires(!detail::is_policy<First>)                                                      \
  __attribute__((noinline)) auto name(const First& first, const Rest&... rest) {             \
    const opsmith_place place = OPSMITH_HERE;                                                \
    if constexpr (std::is_same_v<First, detail::OnHost>) {                                   \
      (detail::check_host("thrust::" #name, rest, place), ...);                              \
      return name(detail::Policy(detail::OnHost(), place), rest...);                         \
    } else {                                                                                 \
      return name(detail::implied("thrust::" #name, place, first, rest...), first, rest...); \
    }                                                                                        \
  }

// --- an item at a time ---------------------------------------------------------------------------

template <typename Out, typename N, typename T>
Out fill_n(const detail::Policy& policy, Out out, N count, const T& value) {
  return detail::written(policy, "thrust::fill", static_cast<uint64_t>(count), out,
                         [value](uint64_t) { return value; });
}
template <typename Out, typename T>
void fill(const detail::Policy& policy, Out first, Out last, const T& value) {
  fill_n(policy, first, detail::between(first, last), value);
}

template <typename Out, typename T = detail::ItemOf<Out>, typename Step = T>
void sequence(const detail::Policy& policy, Out first, Out last, T begin = T(0),
              Step step = Step(1)) {
  using Value = detail::ItemOf<Out>;
  detail::written(policy, "thrust::sequence", detail::between(first, last), first,
                  [=](uint64_t i) { return static_cast<Value>(begin + static_cast<T>(i) * step); });
}

template <typename Out, typename Function>
void tabulate(const detail::Policy& policy, Out first, Out last, Function function) {
  detail::written(policy, "thrust::tabulate", detail::between(first, last), first,
                  [=](uint64_t i) mutable { return function(static_cast<ptrdiff_t>(i)); });
}

template <typename In, typename Out>
Out copy(const detail::Policy& policy, In first, In last, Out out) {
  const auto from = detail::raw(first);
  return detail::written(policy, "thrust::copy", detail::between(first, last), out,
                         [=](uint64_t i) { return from[i]; });
}
template <typename In, typename N, typename Out>
Out copy_n(const detail::Policy& policy, In first, N count, Out out) {
  return copy(policy, first, first + count, out);
}

template <typename In, typename Out, typename Function>
Out transform(const detail::Policy& policy, In first, In last, Out out, Function function) {
  const auto from = detail::raw(first);
  return detail::written(policy, "thrust::transform", detail::between(first, last), out,
                         [=](uint64_t i) mutable { return function(from[i]); });
}
template <typename In, typename Other, typename Out, typename Function>
Out transform(const detail::Policy& policy, In first, In last, Other other, Out out,
              Function function) {
  const auto left = detail::raw(first);
  const auto right = detail::raw(other);
  return detail::written(policy, "thrust::transform", detail::between(first, last), out,
                         [=](uint64_t i) mutable { return function(left[i], right[i]); });
}

template <typename In, typename N, typename Function>
In for_each_n(const detail::Policy& policy, In first, N count, Function function) {
  const auto from = detail::raw(first);
  detail::each(policy, "thrust::for_each", static_cast<uint64_t>(count),
               [=](uint64_t i) mutable { function(from[i]); });
  return first + count;
}
template <typename In, typename Function>
In for_each(const detail::Policy& policy, In first, In last, Function function) {
  return for_each_n(policy, first, last - first, function);
}

template <typename Map, typename In, typename Out>
Out gather(const detail::Policy& policy, Map first, Map last, In in, Out out) {
  const auto map = detail::raw(first);
  const auto from = detail::raw(in);
  return detail::written(policy, "thrust::gather", detail::between(first, last), out,
                         [=](uint64_t i) { return from[map[i]]; });
}
template <typename In, typename Map, typename Out>
void scatter(const detail::Policy& policy, In first, In last, Map places, Out out) {
  const auto from = detail::raw(first);
  const auto map = detail::raw(places);
  const auto to = detail::raw(out);
  detail::each(policy, "thrust::scatter", detail::between(first, last),
               [=](uint64_t i) { to[map[i]] = from[i]; });
}

// --- reductions ----------------------------------------------------------------------------------

template <typename In, typename Function, typename T, typename Operator>
T transform_reduce(const detail::Policy& policy, In first, In last, Function function, T initial,
                   Operator combine) {
  const auto from = detail::raw(first);
  return detail::folded(
      policy, "thrust::transform_reduce", detail::between(first, last), initial,
      [=](uint64_t i) mutable { return function(from[i]); }, combine);
}
template <typename In, typename T = detail::ItemOf<In>, typename Operator = plus<T>>
T reduce(const detail::Policy& policy, In first, In last, T initial = {}, Operator combine = {}) {
  const auto from = detail::raw(first);
  return detail::folded(
      policy, "thrust::reduce", detail::between(first, last), initial,
      [=](uint64_t i) { return from[i]; }, combine);
}

template <typename In, typename Other, typename T>
T inner_product(const detail::Policy& policy, In first, In last, Other other, T initial) {
  const auto left = detail::raw(first);
  const auto right = detail::raw(other);
  return detail::folded(
      policy, "thrust::inner_product", detail::between(first, last), initial,
      [=](uint64_t i) { return left[i] * right[i]; }, plus<T>());
}

template <typename In, typename Predicate>
ptrdiff_t count_if(const detail::Policy& policy, In first, In last, Predicate predicate) {
  const auto from = detail::raw(first);
  const uint64_t count = detail::between(first, last);
  return detail::returned<ptrdiff_t>(policy, "thrust::count_if", [=](ptrdiff_t* result) mutable {
    ptrdiff_t found = 0;
    for (uint64_t i = 0; i < count; ++i) found += predicate(from[i]) ? 1 : 0;
    *result = found;
  });
}
template <typename In, typename T>
ptrdiff_t count(const detail::Policy& policy, In first, In last, const T& value) {
  return count_if(policy, first, last, [=](const auto& item) { return item == value; });
}

template <typename In, typename Less = thrust::less<>>
In min_element(const detail::Policy& policy, In first, In last, Less less = {}) {
  const auto from = detail::raw(first);
  const uint64_t count = detail::between(first, last);
  const auto least = [=](uint64_t* result) mutable {
    uint64_t best = 0;
    for (uint64_t i = 1; i < count; ++i) {
      if (less(from[i], from[best])) best = i;
    }
    *result = best;
  };
  return first +
         static_cast<ptrdiff_t>(detail::returned<uint64_t>(policy, "thrust::min_element", least));
}
template <typename In, typename Less = thrust::less<>>
In max_element(const detail::Policy& policy, In first, In last, Less less = {}) {
  const auto more = [=](const auto& a, const auto& b) mutable { return less(b, a); };
  return min_element(policy, first, last, more);
}

// --- scans and sorts -----------------------------------------------------------------------------

template <typename In, typename Out, typename Operator = plus<>>
Out inclusive_scan(const detail::Policy& policy, In first, In last, Out out,
                   Operator combine = {}) {
  using T = detail::ItemOf<In>;
  const uint64_t count = detail::between(first, last);
  detail::scan<T>(policy, "thrust::inclusive_scan", detail::raw(first), detail::raw(out), count,
                  nullptr, combine);
  return out + static_cast<ptrdiff_t>(count);
}
template <typename In, typename Out, typename T = detail::ItemOf<In>, typename Operator = plus<>>
Out exclusive_scan(const detail::Policy& policy, In first, In last, Out out, T initial = {},
                   Operator combine = {}) {
  const uint64_t count = detail::between(first, last);
  detail::scan<T>(policy, "thrust::exclusive_scan", detail::raw(first), detail::raw(out), count,
                  &initial, combine);
  return out + static_cast<ptrdiff_t>(count);
}

#define OPSMITH_THRUST_SORT(prefix, stable)                                                    \
  template <typename Keys, typename Less = thrust::less<>>                                     \
  void prefix##sort(const detail::Policy& policy, Keys first, Keys last, Less less = {}) {     \
    detail::sort(policy, "thrust::" #prefix "sort", detail::between(first, last),              \
                 detail::raw(first), nullptr, less, stable);                                   \
  }                                                                                            \
  template <typename Keys, typename Values, typename Less = thrust::less<>>                    \
  void prefix##sort_by_key(const detail::Policy& policy, Keys first, Keys last, Values values, \
                           Less less = {}) {                                                   \
    detail::sort(policy, "thrust::" #prefix "sort_by_key", detail::between(first, last),       \
                 detail::raw(first), detail::raw(values), less, stable);                       \
  }
OPSMITH_THRUST_SORT(, false)
OPSMITH_THRUST_SORT(stable_, true)
#undef OPSMITH_THRUST_SORT

// --- selections ----------------------------------------------------------------------------------

template <typename In, typename Stencil, typename Out, typename Predicate>
Out copy_if(const detail::Policy& policy, In first, In last, Stencil stencil, Out out,
            Predicate predicate) {
  const auto from = detail::raw(first);
  const auto by = detail::raw(stencil);
  const auto to = detail::raw(out);
  const uint64_t items = detail::between(first, last);
  emulated::check_apart("thrust::copy_if", from, items, to, items, false, policy.place);
  emulated::check_apart("thrust::copy_if", by, items, to, items, false, policy.place);
  return out +
         static_cast<ptrdiff_t>(detail::kept(policy, "thrust::copy_if", from, to, items,
                                             [=](uint64_t i) mutable { return predicate(by[i]); }));
}
template <typename In, typename Out, typename Predicate>
Out copy_if(const detail::Policy& policy, In first, In last, Out out, Predicate predicate) {
  return copy_if(policy, first, last, first, out, predicate);
}
template <typename It, typename Predicate>
It remove_if(const detail::Policy& policy, It first, It last, Predicate predicate) {
  const auto data = detail::raw(first);
  return first + static_cast<ptrdiff_t>(detail::kept(
                     policy, "thrust::remove_if", data, data, detail::between(first, last),
                     [=](uint64_t i) mutable { return !predicate(data[i]); }));
}
template <typename It, typename Equal = equal_to<>>
It unique(const detail::Policy& policy, It first, It last, Equal equal = {}) {
  const auto data = detail::raw(first);
  const uint64_t items = detail::between(first, last);
  const auto distinct = [=](uint64_t* result) mutable {
    uint64_t count = 0;
    for (uint64_t i = 0; i < items; ++i) {
      if (count == 0 || !equal(data[count - 1], data[i])) data[count++] = data[i];
    }
    *result = count;
  };
  return first +
         static_cast<ptrdiff_t>(detail::returned<uint64_t>(policy, "thrust::unique", distinct));
}
template <typename Keys, typename Values>
pair<Keys, Values> unique_by_key(const detail::Policy& policy, Keys first, Keys last,
                                 Values values) {
  const auto key = detail::raw(first);
  const auto value = detail::raw(values);
  const uint64_t items = detail::between(first, last);
  const auto distinct = [=](ptrdiff_t* result) {
    ptrdiff_t count = 0;
    for (uint64_t i = 0; i < items; ++i) {
      if (count != 0 && key[count - 1] == key[i]) continue;
      key[count] = key[i];
      value[count++] = value[i];
    }
    *result = count;
  };
  const auto count = detail::returned<ptrdiff_t>(policy, "thrust::unique_by_key", distinct);
  return {first + count, values + count};
}

// Reduces each run of equal keys.
template <typename Keys, typename Values, typename KeysOut, typename ValuesOut>
pair<KeysOut, ValuesOut> reduce_by_key(const detail::Policy& policy, Keys first, Keys last,
                                       Values values, KeysOut keys_out, ValuesOut values_out) {
  const auto key = detail::raw(first);
  const auto value = detail::raw(values);
  const auto key_to = detail::raw(keys_out);
  const auto value_to = detail::raw(values_out);
  const uint64_t items = detail::between(first, last);
  emulated::check_apart("thrust::reduce_by_key", key, items, key_to, items, false, policy.place);
  const auto runs = [=](ptrdiff_t* result) {
    ptrdiff_t count = 0;
    for (uint64_t begin = 0, end = 0; begin < items; begin = end, ++count) {
      auto sum = value[begin];
      for (end = begin + 1; end < items && key[end] == key[begin]; ++end) sum = sum + value[end];
      key_to[count] = key[begin];
      value_to[count] = sum;
    }
    *result = count;
  };
  const auto count = detail::returned<ptrdiff_t>(policy, "thrust::reduce_by_key", runs);
  return {keys_out + count, values_out + count};
}

OPSMITH_THRUST_ALGORITHM(fill)
OPSMITH_THRUST_ALGORITHM(fill_n)
OPSMITH_THRUST_ALGORITHM(sequence)
OPSMITH_THRUST_ALGORITHM(tabulate)
OPSMITH_THRUST_ALGORITHM(copy)
OPSMITH_THRUST_ALGORITHM(copy_n)
OPSMITH_THRUST_ALGORITHM(transform)
OPSMITH_THRUST_ALGORITHM(for_each)
OPSMITH_THRUST_ALGORITHM(for_each_n)
OPSMITH_THRUST_ALGORITHM(gather)
OPSMITH_THRUST_ALGORITHM(scatter)
OPSMITH_THRUST_ALGORITHM(transform_reduce)
OPSMITH_THRUST_ALGORITHM(reduce)
OPSMITH_THRUST_ALGORITHM(inner_product)
OPSMITH_THRUST_ALGORITHM(count_if)
OPSMITH_THRUST_ALGORITHM(count)
OPSMITH_THRUST_ALGORITHM(min_element)
OPSMITH_THRUST_ALGORITHM(max_element)
OPSMITH_THRUST_ALGORITHM(inclusive_scan)
OPSMITH_THRUST_ALGORITHM(exclusive_scan)
OPSMITH_THRUST_ALGORITHM(sort)
OPSMITH_THRUST_ALGORITHM(stable_sort)
OPSMITH_THRUST_ALGORITHM(sort_by_key)
OPSMITH_THRUST_ALGORITHM(stable_sort_by_key)
OPSMITH_THRUST_ALGORITHM(copy_if)
OPSMITH_THRUST_ALGORITHM(remove_if)
OPSMITH_THRUST_ALGORITHM(unique)
OPSMITH_THRUST_ALGORITHM(unique_by_key)
OPSMITH_THRUST_ALGORITHM(reduce_by_key)
#undef OPSMITH_THRUST_ALGORITHM

}  // namespace thrust
