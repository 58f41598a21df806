// Algorithms that libraries run on the whole device, for CUB and Thrust. They are slower than the
// libraries' own, and rely on no more than these document: operators are combined in groups, from
// the last group to the first where they must be commutative.
#pragma once

#include <emulated/cuda.h>

#include <cstdint>
#include <string>
#include <type_traits>
#include <utility>

namespace emulated {

// Calls body(i) for each item, in a CUDA thread of its own.
template <typename Body>
void on_device(const char* what, uint64_t items, Body body, Place place) {
  if (items == 0) return;
  struct State {
    Body body;
    uint64_t items;
  } state{body, items};
  const uint64_t threads = items < 128 ? items : 128;
  const auto blocks = static_cast<unsigned>((items + threads - 1) / threads);
  launch({dim3(blocks), dim3(static_cast<unsigned>(threads)), 0, what, nullptr, false, place,
          [](void* opaque) {
            State& all = *static_cast<State*>(opaque);
            const uint64_t item = uint64_t{blockIdx.x} * blockDim.x + threadIdx.x;
            if (item < all.items) all.body(item);
          },
          &state, sizeof state, items});
}

// Memory of the device for the time of an algorithm.
template <typename T>
class Temporary {
 public:
  explicit Temporary(uint64_t count)
      : data_(static_cast<T*>(allocate((count == 0 ? 1 : count) * sizeof(T), sizeof(T)))) {}
  ~Temporary() { release(data_); }
  Temporary(const Temporary&) = delete;
  Temporary& operator=(const Temporary&) = delete;
  T* data() const { return data_; }

 private:
  T* data_;
};

// A value that an algorithm computes on the device and returns to the host.
template <typename T>
class Returned {
 public:
  Returned(const char* what, Place place) : memory_(1), what_(what), place_(place) {
    host_fills(memory_.data(), 0, sizeof(T), what, place);
  }
  T* data() const { return memory_.data(); }
  T get() const {
    alignas(T) unsigned char bytes[sizeof(T)];
    host_copies(bytes, memory_.data(), sizeof(T), what_, place_);
    return *reinterpret_cast<T*>(bytes);
  }

 private:
  Temporary<T> memory_;
  const char* what_;
  Place place_;
};

// The iterator that accesses are made through: a pointer, where the iterator has one.
template <typename Iterator>
auto raw(Iterator iterator) {
  if constexpr (requires { typename Iterator::raw_pointer; }) {
    return iterator.get();
  } else {
    return iterator;
  }
}

template <typename Iterator>
using ItemOf = std::decay_t<decltype(raw(std::declval<Iterator>())[0])>;

// Refuses memory that an algorithm writes while it reads the same; `same`: it may be equal.
template <typename In, typename Out>
void check_apart(const char* what, In in, uint64_t in_count, Out out, uint64_t out_count, bool same,
                 Place place) {
  if constexpr (std::is_pointer_v<In> && std::is_pointer_v<Out>) {
    const auto from = reinterpret_cast<uintptr_t>(in), to = reinterpret_cast<uintptr_t>(out);
    if (same && from == to) return;
    if (from + in_count * sizeof(*in) <= to || to + out_count * sizeof(*out) <= from) return;
    const std::string text = std::string(what) + " writes into the memory that it reads: " +
                             (same ? "input and output may be equal, and not overlap"
                                   : "input and output must not overlap");
    fail(text.c_str(), place);
  }
}

// combine(...) of load(0), … load(count - 1), of which there is at least one.
template <typename Load, typename Operator>
auto folded(uint64_t count, Load load, Operator combine) {
  constexpr uint64_t group = 8;
  using Value = std::decay_t<decltype(combine(load(0), load(0)))>;
  const auto of_group = [&](uint64_t number) {
    const uint64_t begin = number * group, end = begin + group < count ? begin + group : count;
    Value part = load(begin);
    for (uint64_t i = begin + 1; i < end; ++i) part = combine(part, load(i));
    return part;
  };
  uint64_t number = (count - 1) / group;
  Value result = of_group(number);
  while (number-- > 0) result = combine(result, of_group(number));
  return result;
}
template <typename Value, typename Load, typename Operator>
Value folded(uint64_t count, Value initial, Load load, Operator combine) {
  return count == 0 ? initial : static_cast<Value>(combine(initial, folded(count, load, combine)));
}

// store(i, combine(...) of the items before i, and of i itself if it is inclusive), after `initial`
// unless that is null, which only an inclusive scan may have.
template <typename Value, typename Load, typename Store, typename Operator>
void scanned(uint64_t count, const Value* initial, bool inclusive, Load load, Store store,
             Operator combine) {
  constexpr uint64_t group = 8;
  bool any = initial != nullptr;
  Value before = any ? *initial : Value{};
  for (uint64_t begin = 0; begin < count; begin += group) {
    const uint64_t end = begin + group < count ? begin + group : count;
    Value own = static_cast<Value>(load(begin));
    const auto with_before = [&] { return any ? static_cast<Value>(combine(before, own)) : own; };
    store(begin, inclusive ? with_before() : before);
    for (uint64_t i = begin + 1; i < end; ++i) {
      const auto item = load(i);
      const Value until = with_before();
      own = static_cast<Value>(combine(own, item));
      store(i, inclusive ? with_before() : until);
    }
    before = with_before();
    any = true;
  }
}

// Sorts positions by less(a, b), stably, and returns the memory that holds them in the end.
template <typename Less>
uint32_t* sorted(uint32_t* order, uint32_t* spare, uint64_t count, Less less) {
  for (uint64_t width = 1; width < count; width *= 2) {
    for (uint64_t begin = 0; begin < count; begin += 2 * width) {
      const uint64_t middle = begin + width < count ? begin + width : count;
      const uint64_t end = middle + width < count ? middle + width : count;
      uint64_t left = begin, right = middle;
      for (uint64_t to = begin; to < end; ++to) {
        const bool take_right = left == middle || (right < end && less(order[right], order[left]));
        spare[to] = order[take_right ? right++ : left++];
      }
    }
    std::swap(order, spare);
  }
  return order;
}

// Sorts keys, and values with them unless these are null pointers of the language. Equal keys keep
// their order, or are reversed where no order is promised.
template <typename Keys, typename KeysOut, typename Values, typename ValuesOut, typename Less>
void sort_on_device(const char* what, uint64_t count, Keys keys, KeysOut keys_out, Values values,
                    ValuesOut values_out, Less less, bool stable, Place place) {
  constexpr bool has_values = !std::is_same_v<Values, std::nullptr_t>;
  using Key = ItemOf<Keys>;
  using Value = ItemOf<std::conditional_t<has_values, Values, const char*>>;
  if (count == 0) return;
  const Temporary<Key> own_keys(count);
  const Temporary<Value> own_values(has_values ? count : 1);
  const Temporary<uint32_t> order(count), spare(count);
  Key* const key = own_keys.data();
  [[maybe_unused]] Value* const value = own_values.data();
  uint32_t *const first = order.data(), *const second = spare.data();
  on_device(
      what, 1,
      [=](uint64_t) mutable {
        for (uint64_t i = 0; i < count; ++i) {
          key[i] = keys[i];
          if constexpr (has_values) value[i] = values[i];
          first[i] = static_cast<uint32_t>(stable ? i : count - 1 - i);
        }
        const uint32_t* place_of = sorted(
            first, second, count, [&](uint32_t a, uint32_t b) { return less(key[a], key[b]); });
        for (uint64_t i = 0; i < count; ++i) {
          keys_out[i] = key[place_of[i]];
          if constexpr (has_values) values_out[i] = value[place_of[i]];
        }
      },
      place);
}

}  // namespace emulated
