// The functions for device code: barriers, warps, atomics, shared memory.
#pragma once

#include <emulated/vectors.h>

#include <bit>
#include <climits>
#include <cstring>
#include <type_traits>

inline constexpr int warpSize = emulated::warp_size;

struct __half;
struct __half2;
struct __nv_bfloat16;
struct __nv_bfloat162;

namespace emulated {

inline unsigned thread_in_block() {
  return threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
}
inline unsigned threads_of_block() { return blockDim.x * blockDim.y * blockDim.z; }

template <typename T, typename... Types>
inline constexpr bool is_one_of = (std::is_same_v<T, Types> || ...);
template <typename T>
inline constexpr bool is_shuffled =
    std::is_arithmetic_v<T> || std::is_enum_v<T> ||
    is_one_of<T, float, double, __half, __half2, __nv_bfloat16, __nv_bfloat162>;

// The bits of a value of up to eight bytes.
template <typename T>
uint64_t to_bits(T value) {
  static_assert(sizeof(T) <= 8 && std::is_trivially_copyable_v<T>,
                "warps exchange values of up to eight bytes");
  uint64_t bits = 0;
  std::memcpy(&bits, &value, sizeof value);
  return bits;
}
template <typename T>
T from_bits(uint64_t bits) {
  T value;
  std::memcpy(static_cast<void*>(&value), &bits, sizeof value);
  return value;
}

// Numbers that are never rounded are as wide as two values or four, each exchanged by itself.
#ifdef OPSMITH_EXACT
template <typename T, typename Exchange>
T exchanged_in_parts(const T& value, Exchange exchange) {
  constexpr size_t count = sizeof(T) / sizeof(uint64_t);
  uint64_t parts[count];
  std::memcpy(static_cast<void*>(parts), static_cast<const void*>(&value), sizeof value);
  for (uint64_t& part : parts) part = exchange(part);
  T result;
  std::memcpy(static_cast<void*>(&result), static_cast<const void*>(parts), sizeof result);
  return result;
}
#define OPSMITH_IN_PARTS(call)                                                       \
  if constexpr (sizeof(T) > 8) {                                                     \
    return emulated::exchanged_in_parts(value, [&](uint64_t part) { return call; }); \
  } else
#else
#define OPSMITH_IN_PARTS(call)
#endif

// The alignment that `alignas` would give.
template <typename T>
constexpr size_t aligned_as(T alignment) {
  return static_cast<size_t>(alignment);
}

// A __device__ variable, to be watched.
template <typename T>
DeviceVariable device_variable(const char* name, T& variable) {
  using Element = std::remove_all_extents_t<T>;
  const volatile void* data = &variable;
  return DeviceVariable(name, const_cast<void*>(data), sizeof(T), sizeof(Element));
}

// An array in __shared__ memory; `Tag` is unique to its declaration.
template <typename T, typename Tag>
T& shared(const char* name, Tag, size_t alignment = alignof(T), Place place = here()) {
  using Element = std::remove_all_extents_t<T>;
  static Variable variable{name, sizeof(T), alignment > alignof(T) ? alignment : alignof(T),
                           sizeof(Element)};
  return *reinterpret_cast<T*>(shared_memory(variable, place));
}

template <typename T>
T* dynamic_shared(const char* name, Place place = here()) {
  return reinterpret_cast<T*>(dynamic_shared_memory(name, place));
}

// Dynamic shared memory that is declared outside of a function.
template <typename T>
struct DynamicShared {
  const char* name;
  operator T*() const { return dynamic_shared<T>(name); }
};

// The return address of the calling function, which is inlined into the user's code.
#define OPSMITH_HERE \
  ::emulated::Place { nullptr, 0, __builtin_return_address(0) }

#define OPSMITH_UNWATCHED __attribute__((no_sanitize("thread")))

// Not inlined, so that the place is the user's line; its accesses are reported separately.
template <Scope scope, typename T, typename Update>
__attribute__((noinline)) OPSMITH_UNWATCHED T atomically(T* data, Update update) {
  const Place place = OPSMITH_HERE;
  atomic_access(data, sizeof(T), scope, place);
  T before, after;
  std::memcpy(static_cast<void*>(&before), static_cast<const void*>(data), sizeof(T));
  after = update(before);
  const bool changed = std::memcmp(&before, &after, sizeof(T)) != 0;
  std::memcpy(static_cast<void*>(data), static_cast<const void*>(&after), sizeof(T));
  atomic_done(data, sizeof(T), changed, place);
  return before;
}

// Waits for the other lanes of the warp, all of which have to come.
inline Lanes with_every_lane(uint64_t value, const char* what, Place place) {
  const Lanes lanes = exchange(every_lane, value, what, place, true);
  if (lanes.present != every_lane) {
    fail("a matrix of tensor cores is for all lanes of a warp, and some of them have returned",
         place);
  }
  return lanes;
}

// Collects what each lane of the warp brings, all of which have to come.
template <typename Part>
__attribute__((noinline)) OPSMITH_UNWATCHED void collect(const Part& own, Part (&all)[warp_size],
                                                         const char* what, Place place) {
  for (size_t at = 0; at < sizeof own; at += sizeof(uint64_t)) {
    const size_t some = sizeof own - at < sizeof(uint64_t) ? sizeof own - at : sizeof(uint64_t);
    uint64_t bits = 0;
    std::memcpy(&bits, reinterpret_cast<const char*>(&own) + at, some);
    const Lanes lanes = with_every_lane(bits, what, place);
    for (unsigned lane = 0; lane < warp_size; ++lane) {
      std::memcpy(reinterpret_cast<char*>(&all[lane]) + at, &lanes.values[lane], some);
    }
  }
}

inline LaneMask lanes_with(const Lanes& lanes, uint64_t value) {
  LaneMask result = 0;
  for (unsigned lane = 0; lane < warp_size; ++lane) {
    if (lanes.values[lane] == value) result |= LaneMask{1} << lane;
  }
  return result & lanes.present;
}

// Combines the lanes' values in pairs, as devices do, so that those of lanes without an element of
// the user's meet each other as well.
template <typename T, typename Combine>
T reduce(const Lanes& lanes, Combine combine) {
  T values[warp_size];
  unsigned count = 0;
  for (unsigned lane = 0; lane < warp_size; ++lane) {
    if ((lanes.present >> lane & 1) != 0) values[count++] = from_bits<T>(lanes.values[lane]);
  }
  while (count > 1) {
    const unsigned half = (count + 1) / 2;
    for (unsigned i = 0; i + half < count; ++i) values[i] = combine(values[i], values[i + half]);
    count = half;
  }
  return values[0];
}

}  // namespace emulated

using opsmith_place = emulated::Place;
using opsmith_mask = emulated::LaneMask;

// --- barriers ----------------------------------------------------------------------------------

inline void __syncthreads(opsmith_place place = emulated::here()) {
  emulated::synchronise_block(emulated::Vote::none, 0, place);
}
inline int __syncthreads_count(int predicate, opsmith_place place = emulated::here()) {
  return emulated::synchronise_block(emulated::Vote::count, predicate, place);
}
inline int __syncthreads_and(int predicate, opsmith_place place = emulated::here()) {
  return emulated::synchronise_block(emulated::Vote::all, predicate, place);
}
inline int __syncthreads_or(int predicate, opsmith_place place = emulated::here()) {
  return emulated::synchronise_block(emulated::Vote::any, predicate, place);
}
inline void __syncwarp(opsmith_mask mask = emulated::every_lane,
                       opsmith_place place = emulated::here()) {
  emulated::exchange(mask, 0, "__syncwarp", place, true);
}
inline void __threadfence() { emulated::fence(emulated::Scope::device); }
inline void __threadfence_block() { emulated::fence(emulated::Scope::block); }
inline void __threadfence_system() { emulated::fence(emulated::Scope::device); }

// --- warps -------------------------------------------------------------------------------------

// CUDA guarantees only the caller's own lane in __activemask.
inline opsmith_mask __activemask() { return opsmith_mask{1} << emulated::lane_number(); }

namespace emulated {

// Exchange values, and return that of the lane that `source` names, given the caller's own.
template <bool any_type, typename T, typename Source>
T shuffle(LaneMask mask, T value, const char* what, Place place, Source source) {
  if constexpr (!any_type && !is_shuffled<T> && std::is_convertible_v<T, float>) {
    // As CUDA's overload for it would take PyTorch's c10::BFloat16.
    return static_cast<T>(shuffle<false>(mask, static_cast<float>(value), what, place, source));
  }
  static_assert(any_type || is_shuffled<T> || std::is_convertible_v<T, float>,
                "CUDA's shuffles take numbers; those of cooperative groups take more");
  OPSMITH_IN_PARTS((shuffle<true>(mask, part, what, place, source))) {
    const Lanes lanes = exchange(mask, to_bits(value), what, place);
    const unsigned from = source(lanes.lane);
    return from == lanes.lane ? value : from_bits<T>(value_of(lanes, from, what, place));
  }
}

}  // namespace emulated

template <typename T, bool any_type = false>
T __shfl_sync(opsmith_mask mask, T value, int source, int width = warpSize,
              opsmith_place place = emulated::here()) {
  return emulated::shuffle<any_type>(mask, value, "__shfl_sync", place, [=](unsigned lane) {
    return lane / width * width + (source & (width - 1));
  });
}
template <typename T, bool any_type = false>
T __shfl_down_sync(opsmith_mask mask, T value, unsigned delta, int width = warpSize,
                   opsmith_place place = emulated::here()) {
  return emulated::shuffle<any_type>(mask, value, "__shfl_down_sync", place, [=](unsigned lane) {
    return lane % width + delta >= static_cast<unsigned>(width) ? lane : lane + delta;
  });
}
template <typename T, bool any_type = false>
T __shfl_up_sync(opsmith_mask mask, T value, unsigned delta, int width = warpSize,
                 opsmith_place place = emulated::here()) {
  return emulated::shuffle<any_type>(mask, value, "__shfl_up_sync", place, [=](unsigned lane) {
    return lane % width < delta ? lane : lane - delta;
  });
}
template <typename T, bool any_type = false>
T __shfl_xor_sync(opsmith_mask mask, T value, int lane_mask, int width = warpSize,
                  opsmith_place place = emulated::here()) {
  return emulated::shuffle<any_type>(mask, value, "__shfl_xor_sync", place, [=](unsigned lane) {
    const unsigned source = lane ^ static_cast<unsigned>(lane_mask);
    // The lanes of earlier segments may be read, those of later segments not.
    return source >= (lane / width + 1) * width ? lane : source;
  });
}

inline opsmith_mask __ballot_sync(opsmith_mask mask, int predicate,
                                  opsmith_place place = emulated::here()) {
  const auto lanes = emulated::exchange(mask, predicate != 0, "__ballot_sync", place);
  return emulated::lanes_with(lanes, 1);
}
inline int __any_sync(opsmith_mask mask, int predicate, opsmith_place place = emulated::here()) {
  const auto lanes = emulated::exchange(mask, predicate != 0, "__any_sync", place);
  return emulated::lanes_with(lanes, 1) != 0;
}
inline int __all_sync(opsmith_mask mask, int predicate, opsmith_place place = emulated::here()) {
  const auto lanes = emulated::exchange(mask, predicate != 0, "__all_sync", place);
  return emulated::lanes_with(lanes, 1) == lanes.present;
}
template <typename T>
opsmith_mask __match_any_sync(opsmith_mask mask, T value, opsmith_place place = emulated::here()) {
  using namespace emulated;
  return lanes_with(exchange(mask, to_bits(value), "__match_any_sync", place), to_bits(value));
}
template <typename T>
opsmith_mask __match_all_sync(opsmith_mask mask, T value, int* equal,
                              opsmith_place place = emulated::here()) {
  using namespace emulated;
  const Lanes lanes = exchange(mask, to_bits(value), "__match_all_sync", place);
  const bool all = lanes_with(lanes, to_bits(value)) == lanes.present;
  *equal = all ? 1 : 0;
  return all ? mask : 0;
}

#define OPSMITH_REDUCE(name, combine)                                                       \
  template <typename T>                                                                     \
  T name(opsmith_mask mask, T value, opsmith_place place = emulated::here()) {              \
    using namespace emulated;                                                               \
    static_assert(std::is_integral_v<T> && sizeof(T) == 4, #name " takes 32-bit integers"); \
    return reduce<T>(exchange(mask, to_bits(value), #name, place), combine);                \
  }
OPSMITH_REDUCE(__reduce_add_sync, [](T a, T b) {
  return static_cast<T>(static_cast<unsigned>(a) + static_cast<unsigned>(b));
})
OPSMITH_REDUCE(__reduce_min_sync, [](T a, T b) { return a < b ? a : b; })
OPSMITH_REDUCE(__reduce_max_sync, [](T a, T b) { return a < b ? b : a; })
OPSMITH_REDUCE(__reduce_and_sync, [](T a, T b) { return static_cast<T>(a & b); })
OPSMITH_REDUCE(__reduce_or_sync, [](T a, T b) { return static_cast<T>(a | b); })
OPSMITH_REDUCE(__reduce_xor_sync, [](T a, T b) { return static_cast<T>(a ^ b); })
#undef OPSMITH_REDUCE

// --- atomics -----------------------------------------------------------------------------------

// These are templates, so that a function of the user's with the same name takes precedence; and
// the one for types that CUDA does not have comes last of all.
#define OPSMITH_ATOMIC_SCOPE(name, suffix, scope, expression, ...)                        \
  template <typename T, std::enable_if_t<emulated::is_one_of<T, __VA_ARGS__>, int> = 0>   \
  __attribute__((always_inline)) inline T name##suffix(T* address,                        \
                                                       std::type_identity_t<T> value) {   \
    return emulated::atomically<emulated::Scope::scope>(                                  \
        address, [value]([[maybe_unused]] T old) { return static_cast<T>(expression); }); \
  }                                                                                       \
  template <typename T, std::enable_if_t<!emulated::is_one_of<T, __VA_ARGS__>, int> = 0>  \
  T name##suffix(T* address, ...) {                                                       \
    static_assert(emulated::is_one_of<T, __VA_ARGS__>,                                    \
                  "CUDA has no " #name #suffix " for a pointer to this type");            \
    return *address;                                                                      \
  }
#define OPSMITH_ATOMIC(name, expression, ...)                        \
  OPSMITH_ATOMIC_SCOPE(name, , device, expression, __VA_ARGS__)      \
  OPSMITH_ATOMIC_SCOPE(name, _block, block, expression, __VA_ARGS__) \
  OPSMITH_ATOMIC_SCOPE(name, _system, device, expression, __VA_ARGS__)

namespace emulated {
// Integers wrap around, as on the device.
template <typename T>
T wrapping_add(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<std::make_unsigned_t<T>>(a) +
                          static_cast<std::make_unsigned_t<T>>(b));
  } else if constexpr (std::is_same_v<T, float2>) {
    return {a.x + b.x, a.y + b.y};
  } else if constexpr (std::is_same_v<T, float4>) {
    return {a.x + b.x, a.y + b.y, a.z + b.z, a.w + b.w};
  } else {
    return a + b;
  }
}
template <typename T>
T wrapping_subtract(T a, T b) {
  if constexpr (std::is_integral_v<T>) {
    return static_cast<T>(static_cast<std::make_unsigned_t<T>>(a) -
                          static_cast<std::make_unsigned_t<T>>(b));
  } else {
    return a - b;
  }
}
}  // namespace emulated

#define OPSMITH_INTEGERS int, unsigned, unsigned long long
OPSMITH_ATOMIC(atomicAdd, emulated::wrapping_add<T>(old, value), OPSMITH_INTEGERS, float, double,
               float2, float4, __half, __half2, __nv_bfloat16, __nv_bfloat162)
OPSMITH_ATOMIC(atomicSub, emulated::wrapping_subtract<T>(old, value), int, unsigned)
OPSMITH_ATOMIC(atomicExch, value, OPSMITH_INTEGERS, float)
OPSMITH_ATOMIC(atomicMin, value < old ? value : old, OPSMITH_INTEGERS, long long)
OPSMITH_ATOMIC(atomicMax, old < value ? value : old, OPSMITH_INTEGERS, long long)
OPSMITH_ATOMIC(atomicAnd, old& value, OPSMITH_INTEGERS)
OPSMITH_ATOMIC(atomicOr, old | value, OPSMITH_INTEGERS)
OPSMITH_ATOMIC(atomicXor, old ^ value, OPSMITH_INTEGERS)
OPSMITH_ATOMIC(atomicInc, old >= value ? 0 : old + 1, unsigned)
OPSMITH_ATOMIC(atomicDec, old == 0 || old > value ? value : old - 1, unsigned)
#undef OPSMITH_ATOMIC
#undef OPSMITH_ATOMIC_SCOPE

#define OPSMITH_CAS(name, scope)                                                                 \
  template <typename T,                                                                          \
            std::enable_if_t<emulated::is_one_of<T, OPSMITH_INTEGERS, unsigned short>, int> = 0> \
  __attribute__((always_inline)) inline T name(T* address, std::type_identity_t<T> expected,     \
                                               std::type_identity_t<T> value) {                  \
    emulated::expect(address, sizeof(T), &expected);                                             \
    return emulated::atomically<emulated::Scope::scope>(                                         \
        address, [expected, value](T old) { return old == expected ? value : old; });            \
  }
OPSMITH_CAS(atomicCAS, device)
OPSMITH_CAS(atomicCAS_block, block)
OPSMITH_CAS(atomicCAS_system, device)
#undef OPSMITH_CAS
#undef OPSMITH_INTEGERS

// --- memory ------------------------------------------------------------------------------------

#define OPSMITH_LOAD(name)                                         \
  template <typename T>                                            \
  __attribute__((always_inline)) inline T name(const T* address) { \
    return *address;                                               \
  }
OPSMITH_LOAD(__ldca)
OPSMITH_LOAD(__ldcg)
OPSMITH_LOAD(__ldcs)
OPSMITH_LOAD(__ldlu)
OPSMITH_LOAD(__ldcv)
#undef OPSMITH_LOAD
template <typename T>
__attribute__((always_inline)) inline T __ldg(const T* address) {
  emulated::read_only_access(address, sizeof(T));
  return *address;
}
#define OPSMITH_STORE(name)                                                                    \
  template <typename T>                                                                        \
  __attribute__((always_inline)) inline void name(T* address, std::type_identity_t<T> value) { \
    *address = value;                                                                          \
  }
OPSMITH_STORE(__stwb)
OPSMITH_STORE(__stcg)
OPSMITH_STORE(__stcs)
OPSMITH_STORE(__stwt)
#undef OPSMITH_STORE

inline size_t __cvta_generic_to_shared(const void* data) { return emulated::shared_address(data); }
inline void* __cvta_shared_to_generic(size_t address, opsmith_place place = emulated::here()) {
  return emulated::shared_memory_at(address, "__cvta_shared_to_generic", place);
}
inline size_t __cvta_generic_to_global(const void* data) { return reinterpret_cast<size_t>(data); }

// --- the rest ----------------------------------------------------------------------------------

inline long long clock64() { return static_cast<long long>(emulated::ticks()); }
inline void __nanosleep(unsigned) {}
inline void __trap(opsmith_place place = emulated::here()) {
  emulated::fail("device code called __trap", place);
}
