// The functions that compilers call at memory accesses and undefined behaviour (-fsanitize=…).
#include "state.h"
#include "watch.h"

#define HOOK extern "C" OPSMITH_EMULATED_EXPORT

namespace {

// Inlined, since a hook runs at every access.
[[gnu::always_inline]] inline void access(void* address, uint64_t bytes, bool write,
                                          const void* place) {
  using namespace emulated;
  if (state().program && !state().in_device) return;  // its memory is closed to the host
  emulated::access(
      {static_cast<char*>(address), bytes, write ? Does::writes : Does::reads, Kind::plain, place});
}

}  // namespace

using emulated::volatile_access;

#define OPSMITH_ACCESS(name, call, size, write)              \
  HOOK void __tsan_##name##size(void* address) {             \
    call(address, size, write, __builtin_return_address(0)); \
  }
#define OPSMITH_ACCESSES(size)                                          \
  OPSMITH_ACCESS(read, access, size, false)                             \
  OPSMITH_ACCESS(write, access, size, true)                             \
  OPSMITH_ACCESS(unaligned_read, access, size, false)                   \
  OPSMITH_ACCESS(unaligned_write, access, size, true)                   \
  OPSMITH_ACCESS(read_write, access, size, true)                        \
  OPSMITH_ACCESS(unaligned_read_write, access, size, true)              \
  OPSMITH_ACCESS(volatile_read, volatile_access, size, false)           \
  OPSMITH_ACCESS(volatile_write, volatile_access, size, true)           \
  OPSMITH_ACCESS(unaligned_volatile_read, volatile_access, size, false) \
  OPSMITH_ACCESS(unaligned_volatile_write, volatile_access, size, true)
OPSMITH_ACCESSES(1)
OPSMITH_ACCESSES(2)
OPSMITH_ACCESSES(4)
OPSMITH_ACCESSES(8)
OPSMITH_ACCESSES(16)
#undef OPSMITH_ACCESSES
#undef OPSMITH_ACCESS

HOOK void __tsan_read_range(void* address, size_t bytes) {
  access(address, bytes, false, __builtin_return_address(0));
}
HOOK void __tsan_write_range(void* address, size_t bytes) {
  access(address, bytes, true, __builtin_return_address(0));
}
HOOK void* __tsan_memmove(void* to, const void* from, size_t bytes) {
  access(const_cast<void*>(from), bytes, false, __builtin_return_address(0));
  access(to, bytes, true, __builtin_return_address(0));
  return memmove(to, from, bytes);
}
HOOK void* __tsan_memcpy(void*, const void*, size_t) __attribute__((alias("__tsan_memmove")));
HOOK void* __tsan_memset(void* to, int value, size_t bytes) {
  access(to, bytes, true, __builtin_return_address(0));
  return memset(to, value, bytes);
}
// What the linker puts in place of calls whose size is not constant (--wrap).
HOOK void* __wrap_memcpy(void*, const void*, size_t) __attribute__((alias("__tsan_memmove")));
HOOK void* __wrap_memmove(void*, const void*, size_t) __attribute__((alias("__tsan_memmove")));
HOOK void* __wrap_memset(void*, int, size_t) __attribute__((alias("__tsan_memset")));
HOOK void __tsan_vptr_update(void**, void*) {}
HOOK void __tsan_vptr_read(void**) {}
HOOK void __tsan_func_entry(void*) {}
HOOK void __tsan_func_exit() {}
HOOK void __tsan_init() {}

// The host code's own atomics, such as the counter of calls and flags of the standard library, stay
// atomic.
#define OPSMITH_ATOMIC(bits, type, name, intrinsic)                            \
  HOOK type __tsan_atomic##bits##_##name(volatile type* at, type value, int) { \
    return intrinsic(at, value, __ATOMIC_SEQ_CST);                             \
  }
#define OPSMITH_EXCHANGE(bits, type, name)                                                  \
  HOOK int __tsan_atomic##bits##_compare_exchange_##name(volatile type* at, type* expected, \
                                                         type value, int, int) {            \
    return __atomic_compare_exchange_n(at, expected, value, 0, __ATOMIC_SEQ_CST,            \
                                       __ATOMIC_SEQ_CST);                                   \
  }
#define OPSMITH_ATOMICS(bits, type)                                           \
  HOOK type __tsan_atomic##bits##_load(const volatile type* at, int) {        \
    return __atomic_load_n(at, __ATOMIC_SEQ_CST);                             \
  }                                                                           \
  HOOK void __tsan_atomic##bits##_store(volatile type* at, type value, int) { \
    __atomic_store_n(at, value, __ATOMIC_SEQ_CST);                            \
  }                                                                           \
  OPSMITH_ATOMIC(bits, type, exchange, __atomic_exchange_n)                   \
  OPSMITH_ATOMIC(bits, type, fetch_add, __atomic_fetch_add)                   \
  OPSMITH_ATOMIC(bits, type, fetch_sub, __atomic_fetch_sub)                   \
  OPSMITH_ATOMIC(bits, type, fetch_and, __atomic_fetch_and)                   \
  OPSMITH_ATOMIC(bits, type, fetch_or, __atomic_fetch_or)                     \
  OPSMITH_ATOMIC(bits, type, fetch_xor, __atomic_fetch_xor)                   \
  OPSMITH_EXCHANGE(bits, type, strong)                                        \
  OPSMITH_EXCHANGE(bits, type, weak)
OPSMITH_ATOMICS(8, uint8_t)
OPSMITH_ATOMICS(16, uint16_t)
OPSMITH_ATOMICS(32, uint32_t)
OPSMITH_ATOMICS(64, uint64_t)
#undef OPSMITH_ATOMICS
#undef OPSMITH_EXCHANGE
#undef OPSMITH_ATOMIC
HOOK void __tsan_atomic_thread_fence(int) { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
HOOK void __tsan_atomic_signal_fence(int) {}

namespace {

// The first argument of every handler, and the description of a misaligned access.
struct Description {
  const char* file;
  uint32_t line;
  uint32_t column;
};
struct Type {
  uint16_t kind;
  uint16_t info;
  char name[1];
};
struct Mismatch {
  Description where;
  const Type* type;
  uint8_t log_alignment;
  uint8_t kind;
};

[[noreturn]] void undefined(const std::string& text, const void* place,
                            const char* kind = "undefined") {
  emulated::State& s = emulated::state();
  const std::string who =
      s.current != nullptr ? emulated::name_of(*s.current) + ": " : std::string("host code: ");
  emulated::stop(kind, who + text, {nullptr, 0, place});
}

}  // namespace

#define OPSMITH_OVERFLOW(name)                                            \
  HOOK void __ubsan_handle_##name##_overflow_abort(void*, void*, void*) { \
    undefined("a signed integer overflows", __builtin_return_address(0)); \
  }
OPSMITH_OVERFLOW(add)
OPSMITH_OVERFLOW(sub)
OPSMITH_OVERFLOW(mul)
#undef OPSMITH_OVERFLOW
HOOK void __ubsan_handle_negate_overflow_abort(void*, void*) {
  undefined("a signed integer overflows", __builtin_return_address(0));
}
HOOK void __ubsan_handle_divrem_overflow_abort(void*, void*, void* divisor) {
  undefined(divisor == nullptr ? "an integer is divided by zero" : "a signed integer overflows",
            __builtin_return_address(0));
}
HOOK void __ubsan_handle_shift_out_of_bounds_abort(void*, void*, void*) {
  undefined("an integer is shifted by as many bits as it has, or more, or fewer than 0",
            __builtin_return_address(0));
}
HOOK void __ubsan_handle_out_of_bounds_abort(void*, void* index) {
  undefined("the index " + std::to_string(static_cast<int64_t>(reinterpret_cast<intptr_t>(index))) +
                " is outside of its array",
            __builtin_return_address(0));
}
HOOK void __ubsan_handle_type_mismatch_v1_abort(Mismatch* data, void* address) {
  const auto where = reinterpret_cast<uintptr_t>(address);
  const uint64_t alignment = uint64_t{1} << data->log_alignment;
  constexpr const char* kinds[] = {"read",      "written",   "bound to a reference",
                                   "used",      "used",      "used",
                                   "converted", "converted", "converted"};
  const char* done = data->kind < 9 ? kinds[data->kind] : "used";
  if (where == 0) undefined("a null pointer is " + std::string(done), __builtin_return_address(0));
  undefined(std::string(data->type->name) + " is " + done +
                " at an address that is not a multiple of " + std::to_string(alignment),
            __builtin_return_address(0), "alignment");
}
