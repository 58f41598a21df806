// libcu++'s atomic_ref: atomic operations with a scope and an order. An order is a fence before or
// after the operation, which is at least what libcu++ promises.
#pragma once

#include <emulated/cuda_std.h>

#include <atomic>
#include <cstring>

namespace cuda {

using ::std::memory_order;
using ::std::memory_order_acq_rel;
using ::std::memory_order_acquire;
using ::std::memory_order_consume;
using ::std::memory_order_relaxed;
using ::std::memory_order_release;
using ::std::memory_order_seq_cst;

enum thread_scope {
  thread_scope_system,
  thread_scope_device,
  thread_scope_block,
  thread_scope_thread,
};

namespace detail {

inline constexpr bool is_release(memory_order order) {
  return order == memory_order_release || order == memory_order_acq_rel ||
         order == memory_order_seq_cst;
}
inline constexpr bool is_acquire(memory_order order) {
  return order != memory_order_relaxed && order != memory_order_release;
}
constexpr emulated::Scope scope_of(thread_scope scope) {
  return scope == thread_scope_system || scope == thread_scope_device ? emulated::Scope::device
                                                                      : emulated::Scope::block;
}

}  // namespace detail

inline void atomic_thread_fence(memory_order order, thread_scope scope = thread_scope_system) {
  if (order != memory_order_relaxed) emulated::fence(detail::scope_of(scope));
}

template <typename T, thread_scope kScope = thread_scope_system>
class atomic_ref {
  static_assert(sizeof(T) <= 8, "an atomic operation has at most 8 bytes");
  static constexpr emulated::Scope scope = detail::scope_of(kScope);

 public:
  using value_type = T;
  explicit atomic_ref(T& value) : data_(&value) {}

  // Inlined, so that the place of an operation is the user's line.
  __forceinline__ T load(memory_order order = memory_order_seq_cst) const {
    const T value = *static_cast<volatile const T*>(data_);
    after(order);
    return value;
  }
  __forceinline__ void store(T value, memory_order order = memory_order_seq_cst) const {
    before(order);
    *static_cast<volatile T*>(data_) = value;
  }
#define OPSMITH_FETCH(name, expression)                                                 \
  __forceinline__ T name(T value, memory_order order = memory_order_seq_cst) const {    \
    before(order);                                                                      \
    const T found = emulated::atomically<scope>(                                        \
        data_, [value]([[maybe_unused]] T old) { return static_cast<T>(expression); }); \
    after(order);                                                                       \
    return found;                                                                       \
  }
  OPSMITH_FETCH(exchange, value)
  OPSMITH_FETCH(fetch_add, emulated::wrapping_add<T>(old, value))
  OPSMITH_FETCH(fetch_sub, emulated::wrapping_subtract<T>(old, value))
  OPSMITH_FETCH(fetch_min, value < old ? value : old)
  OPSMITH_FETCH(fetch_max, old < value ? value : old)
  OPSMITH_FETCH(fetch_and, old& value)
  OPSMITH_FETCH(fetch_or, old | value)
  OPSMITH_FETCH(fetch_xor, old ^ value)
#undef OPSMITH_FETCH
  __forceinline__ bool compare_exchange_strong(T& expected, T value,
                                               memory_order order = memory_order_seq_cst) const {
    before(order);
    const T wanted = expected;
    const T found = emulated::atomically<scope>(data_, [wanted, value](T old) {
      return ::std::memcmp(&old, &wanted, sizeof(T)) == 0 ? value : old;
    });
    after(order);
    expected = found;
    return ::std::memcmp(&found, &wanted, sizeof(T)) == 0;
  }
  __forceinline__ bool compare_exchange_weak(T& expected, T value,
                                             memory_order order = memory_order_seq_cst) const {
    return compare_exchange_strong(expected, value, order);
  }

 private:
  __forceinline__ static void before(memory_order order) {
    if (detail::is_release(order)) emulated::fence(scope);
  }
  __forceinline__ static void after(memory_order order) {
    if (detail::is_acquire(order)) emulated::fence(scope);
  }

  T* data_;
};

}  // namespace cuda
