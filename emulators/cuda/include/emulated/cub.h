// CUB's collectives of a block and of a warp. They are slower than CUB's own, and rely on no more
// than CUB documents: memory of a collective must not be used again before a barrier, the result of
// a reduction belongs to the first thread, and a collective is no barrier for what is around it.
#pragma once

#include <emulated/cuda.h>

#include <cstddef>
#include <cstring>
#include <type_traits>

namespace cub {

// --- operators -----------------------------------------------------------------------------------

#define OPSMITH_CUB_OPERATOR(Name, expression)                   \
  struct Name {                                                  \
    template <typename T>                                        \
    __forceinline__ T operator()(const T& a, const T& b) const { \
      return expression;                                         \
    }                                                            \
  };
OPSMITH_CUB_OPERATOR(Sum, a + b)
OPSMITH_CUB_OPERATOR(Max, a < b ? b : a)
OPSMITH_CUB_OPERATOR(Min, b < a ? b : a)
// The first of equal values.
OPSMITH_CUB_OPERATOR(ArgMax, a.value < b.value || (a.value == b.value && b.key < a.key) ? b : a)
OPSMITH_CUB_OPERATOR(ArgMin, b.value < a.value || (a.value == b.value && b.key < a.key) ? b : a)
#undef OPSMITH_CUB_OPERATOR

template <typename Key_, typename Value_>
struct KeyValuePair {
  using Key = Key_;
  using Value = Value_;
  Key key;
  Value value;
  KeyValuePair() = default;
  KeyValuePair(const Key& of, const Value& is) : key(of), value(is) {}
};

// Memory for a value that is not constructed, as in a union of several collectives' memory.
template <typename T>
struct Uninitialized {
  alignas(T) unsigned char bytes[sizeof(T)];
  T& Alias() { return *reinterpret_cast<T*>(bytes); }
};

namespace detail {

template <typename T, size_t Count>
struct Room {
  alignas(T) unsigned char bytes[sizeof(T) * Count];
  T* data() { return reinterpret_cast<T*>(bytes); }
};

// What CUB leaves undefined: a value that no result should have.
template <typename T>
__forceinline__ T undefined_value() {
  unsigned char bytes[sizeof(T)];
  for (unsigned char& one : bytes) one = 0xff;
  T value;
  std::memcpy(static_cast<void*>(&value), bytes, sizeof value);
  return value;
}

using emulated::thread_in_block;

template <typename T, typename Operator>
__forceinline__ T folded(const T* items, int count, Operator combine) {
  T result = items[0];
  for (int i = 1; i < count; ++i) result = combine(result, items[i]);
  return result;
}

inline void check_block(unsigned threads, const char* what, opsmith_place place) {
  if (emulated::threads_of_block() != threads) emulated::fail(what, place);
}
#define OPSMITH_CUB_BLOCK(what) \
  detail::check_block(threads, what " in a block of another size than it was declared for", place)

#define OPSMITH_CUB_PLACE opsmith_place place = emulated::here()

// Memory of a collective that was constructed without any.
template <typename Storage>
Storage& own_storage(opsmith_place place) {
  return emulated::shared<Storage>("a collective's own", [] {}, alignof(Storage), place);
}

}  // namespace detail

// --- reductions ----------------------------------------------------------------------------------

enum BlockReduceAlgorithm {
  BLOCK_REDUCE_RAKING_COMMUTATIVE_ONLY,
  BLOCK_REDUCE_RAKING,
  BLOCK_REDUCE_WARP_REDUCTIONS
};

template <typename T, int X, BlockReduceAlgorithm = BLOCK_REDUCE_WARP_REDUCTIONS, int Y = 1,
          int Z = 1, int = 0>
class BlockReduce {
  static constexpr unsigned threads = X * Y * Z;

 public:
  using TempStorage = detail::Room<T, threads>;
  __forceinline__ explicit BlockReduce(OPSMITH_CUB_PLACE)
      : room_(detail::own_storage<TempStorage>(place)) {}
  __forceinline__ explicit BlockReduce(TempStorage& storage) : room_(storage) {}

  template <typename Operator>
  __forceinline__ T Reduce(T input, Operator combine, int valid = threads, OPSMITH_CUB_PLACE) {
    OPSMITH_CUB_BLOCK("cub::BlockReduce");
    T* const data = room_.data();
    const unsigned rank = detail::thread_in_block();
    data[rank] = input;
    __syncthreads(place);
    return rank != 0 ? detail::undefined_value<T>() : detail::folded(data, valid, combine);
  }
  template <int Count, typename Operator>
  __forceinline__ T Reduce(T (&inputs)[Count], Operator combine, OPSMITH_CUB_PLACE) {
    return Reduce(detail::folded(inputs, Count, combine), combine, threads, place);
  }
  __forceinline__ T Sum(T input, int valid = threads, OPSMITH_CUB_PLACE) {
    return Reduce(input, cub::Sum(), valid, place);
  }
  template <int Count>
  __forceinline__ T Sum(T (&inputs)[Count], OPSMITH_CUB_PLACE) {
    return Reduce(inputs, cub::Sum(), place);
  }

 private:
  TempStorage& room_;
};

namespace detail {

// The lanes of a logical warp, and how many of them the block has.
template <int Size>
struct LogicalWarp {
  static_assert(Size >= 1 && Size <= warpSize, "a logical warp is a part of a warp");
  unsigned lane = emulated::lane_number() % Size;
  opsmith_mask mask = (Size == warpSize ? emulated::every_lane : ((opsmith_mask{1} << Size) - 1))
                      << emulated::lane_number() / Size * Size;
};

}  // namespace detail

template <typename T, int Size = warpSize, int = 0>
class WarpReduce {
 public:
  using TempStorage = detail::Room<T, Size>;
  __forceinline__ explicit WarpReduce(TempStorage& storage) : room_(storage) {}

  template <typename Operator>
  __forceinline__ T Reduce(T input, Operator combine, int valid = Size, OPSMITH_CUB_PLACE) {
    const detail::LogicalWarp<Size> warp;
    T* const data = room_.data();
    data[warp.lane] = input;
    __syncwarp(warp.mask, place);
    return warp.lane != 0 ? detail::undefined_value<T>() : detail::folded(data, valid, combine);
  }
  __forceinline__ T Sum(T input, int valid = Size, OPSMITH_CUB_PLACE) {
    return Reduce(input, cub::Sum(), valid, place);
  }

 private:
  TempStorage& room_;
};

}  // namespace cub
