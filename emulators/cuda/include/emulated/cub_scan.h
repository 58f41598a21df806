// CUB's scans of a block and of a warp; see cub.h.
#pragma once

#include <emulated/cub.h>

namespace cub {

enum BlockScanAlgorithm { BLOCK_SCAN_RAKING, BLOCK_SCAN_RAKING_MEMOIZE, BLOCK_SCAN_WARP_SCANS };

namespace detail {

template <typename T, size_t Count>
struct ScanRoom {
  Room<T, Count> given, before;
  Room<T, 1> total, prefix;
};

struct NoPrefix {};

// What comes before a thread's own values, in a block or a warp.
template <typename T>
struct Before {
  T value;     // undefined where nothing is
  bool known;  // whether anything is before
  T total;
};

// The last read of a collective: a neighbour's value, as CUB's own may read it. Its owner writes it
// first of all when the memory is used again.
template <typename T, size_t Count>
__forceinline__ void read_neighbour(ScanRoom<T, Count>& room, unsigned rank, unsigned count) {
  const unsigned char value = room.given.bytes[(rank + 1) % count * sizeof(T)];
  asm volatile("" : : "r"(value));
}

template <typename T, size_t Count, typename Operator, typename Barrier>
__forceinline__ Before<T> all_before(ScanRoom<T, Count>& room, unsigned rank, unsigned count,
                                     const T& mine, Operator combine, Barrier barrier) {
  room.given.data()[rank] = mine;
  barrier();
  if (rank == 0) {
    T sum = room.given.data()[0];
    for (unsigned i = 1; i < count; ++i) {
      room.before.data()[i] = sum;
      sum = combine(sum, room.given.data()[i]);
    }
    room.total.data()[0] = sum;
  }
  barrier();
  return {rank == 0 ? undefined_value<T>() : room.before.data()[rank], rank != 0,
          room.total.data()[0]};
}

}  // namespace detail

template <typename T, int X, BlockScanAlgorithm = BLOCK_SCAN_RAKING, int Y = 1, int Z = 1, int = 0>
class BlockScan {
  static constexpr unsigned threads = X * Y * Z;

 public:
  using TempStorage = detail::ScanRoom<T, threads>;
  __forceinline__ explicit BlockScan(OPSMITH_CUB_PLACE)
      : room_(detail::own_storage<TempStorage>(place)) {}
  __forceinline__ explicit BlockScan(TempStorage& storage) : room_(storage) {}

  // `last` is the variable for the total or the callback that gives what is before the block.
  template <typename Last = const detail::NoPrefix>
  __forceinline__ void InclusiveSum(T in, T& out, Last& last = none_, OPSMITH_CUB_PLACE) {
    one<true>(in, out, nullptr, cub::Sum(), last, place);
  }
  template <int Count, typename Last = const detail::NoPrefix>
  __forceinline__ void InclusiveSum(T (&in)[Count], T (&out)[Count], Last& last = none_,
                                    OPSMITH_CUB_PLACE) {
    scan<true>(in, out, nullptr, cub::Sum(), last, place);
  }
  template <typename Last = const detail::NoPrefix>
  __forceinline__ void ExclusiveSum(T in, T& out, Last& last = none_, OPSMITH_CUB_PLACE) {
    one<false>(in, out, &zero_, cub::Sum(), last, place);
  }
  template <int Count, typename Last = const detail::NoPrefix>
  __forceinline__ void ExclusiveSum(T (&in)[Count], T (&out)[Count], Last& last = none_,
                                    OPSMITH_CUB_PLACE) {
    scan<false>(in, out, &zero_, cub::Sum(), last, place);
  }
  template <typename Operator, typename Last = const detail::NoPrefix>
  __forceinline__ void InclusiveScan(T in, T& out, Operator combine, Last& last = none_,
                                     OPSMITH_CUB_PLACE) {
    one<true>(in, out, nullptr, combine, last, place);
  }
  template <int Count, typename Operator, typename Last = const detail::NoPrefix>
  __forceinline__ void InclusiveScan(T (&in)[Count], T (&out)[Count], Operator combine,
                                     Last& last = none_, OPSMITH_CUB_PLACE) {
    scan<true>(in, out, nullptr, combine, last, place);
  }
  template <typename Operator, typename Last = const detail::NoPrefix>
  __forceinline__ void ExclusiveScan(T in, T& out, T first, Operator combine, Last& last = none_,
                                     OPSMITH_CUB_PLACE) {
    one<false>(in, out, &first, combine, last, place);
  }
  template <int Count, typename Operator>
  __forceinline__ void ExclusiveScan(T (&in)[Count], T (&out)[Count], T first, Operator combine,
                                     OPSMITH_CUB_PLACE) {
    scan<false>(in, out, &first, combine, none_, place);
  }
  template <int Count, typename Operator, typename Prefix>
  __forceinline__ void ExclusiveScan(T (&in)[Count], T (&out)[Count], Operator combine,
                                     Prefix& prefix, OPSMITH_CUB_PLACE) {
    scan<false>(in, out, nullptr, combine, prefix, place);
  }

 private:
  template <bool inclusive, typename Operator, typename Last>
  __forceinline__ void one(T in, T& out, const T* first, Operator combine, Last& last,
                           opsmith_place place) {
    T ins[1] = {in}, outs[1];
    scan<inclusive>(ins, outs, first, combine, last, place);
    out = outs[0];
  }

  template <bool inclusive, int Count, typename Operator, typename Last>
  __forceinline__ void scan(T (&in)[Count], T (&out)[Count], const T* first, Operator combine,
                            Last& last, opsmith_place place) {
    OPSMITH_CUB_BLOCK("cub::BlockScan");
    const unsigned rank = detail::thread_in_block();
    auto before = detail::all_before(room_, rank, threads, detail::folded(in, Count, combine),
                                     combine, [&] { __syncthreads(place); });
    constexpr bool gives_total = std::is_same_v<Last, T>;
    if constexpr (gives_total) last = before.total;
    T start = before.value;
    bool known = before.known;
    if constexpr (!gives_total && !std::is_same_v<Last, const detail::NoPrefix>) {
      // The first warp calls it, and the value of its first lane counts.
      if (rank < static_cast<unsigned>(warpSize)) {
        const T given = last(before.total);
        if (rank == 0) room_.prefix.data()[0] = given;
      }
      __syncthreads(place);
      const T given = room_.prefix.data()[0];
      start = known ? combine(given, start) : given;
      known = true;
    } else if (first != nullptr) {
      start = known ? combine(*first, start) : *first;
      known = true;
    }
    for (int i = 0; i < Count; ++i) {
      const T value = in[i];
      const T with = known ? combine(start, value) : value;
      out[i] = inclusive ? with : start;
      start = with;
      known = true;
    }
    detail::read_neighbour(room_, rank, threads);
  }

  TempStorage& room_;
  const T zero_ = T();
  static constexpr detail::NoPrefix none_{};
};

template <typename T, int Size = warpSize, int = 0>
class WarpScan {
 public:
  using TempStorage = detail::ScanRoom<T, Size>;
  __forceinline__ explicit WarpScan(TempStorage& storage) : room_(storage) {}

  template <typename Total = const detail::NoPrefix>
  __forceinline__ void InclusiveSum(T in, T& out, Total& total = none_, OPSMITH_CUB_PLACE) {
    InclusiveScan(in, out, cub::Sum(), total, place);
  }
  template <typename Total = const detail::NoPrefix>
  __forceinline__ void ExclusiveSum(T in, T& out, Total& total = none_, OPSMITH_CUB_PLACE) {
    ExclusiveScan(in, out, T(), cub::Sum(), total, place);
  }
  template <typename Operator, typename Total = const detail::NoPrefix>
  __forceinline__ void InclusiveScan(T in, T& out, Operator combine, Total& total = none_,
                                     OPSMITH_CUB_PLACE) {
    const auto before = all_before(in, combine, place);
    out = before.known ? combine(before.value, in) : in;
    if constexpr (!std::is_same_v<Total, const detail::NoPrefix>) total = before.total;
  }
  template <typename Operator, typename Total = const detail::NoPrefix>
  __forceinline__ void ExclusiveScan(T in, T& out, T first, Operator combine, Total& total = none_,
                                     OPSMITH_CUB_PLACE) {
    const auto before = all_before(in, combine, place);
    out = before.known ? combine(first, before.value) : first;
    if constexpr (!std::is_same_v<Total, const detail::NoPrefix>) total = before.total;
  }

 private:
  template <typename Operator>
  __forceinline__ detail::Before<T> all_before(const T& in, Operator combine, opsmith_place place) {
    const detail::LogicalWarp<Size> warp;
    const auto before = detail::all_before(room_, warp.lane, Size, in, combine,
                                           [&] { __syncwarp(warp.mask, place); });
    detail::read_neighbour(room_, warp.lane, Size);
    return before;
  }

  TempStorage& room_;
  static constexpr detail::NoPrefix none_{};
};

}  // namespace cub
