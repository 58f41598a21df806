// Reductions over a tile of a warp.
#pragma once

#include <cooperative_groups.h>

#include <type_traits>

namespace cooperative_groups {

#define OPSMITH_OPERATION(name, expression)                                  \
  template <typename T = void>                                               \
  struct name {                                                              \
    template <typename U>                                                    \
    std::conditional_t<std::is_void_v<T>, U, T> operator()(U a, U b) const { \
      return expression;                                                     \
    }                                                                        \
  };
OPSMITH_OPERATION(plus, a + b)
OPSMITH_OPERATION(less, b < a ? b : a)
OPSMITH_OPERATION(greater, a < b ? b : a)
OPSMITH_OPERATION(bit_and, a& b)
OPSMITH_OPERATION(bit_or, a | b)
OPSMITH_OPERATION(bit_xor, a ^ b)
#undef OPSMITH_OPERATION

template <unsigned Size, typename Parent, typename T, typename Operation>
T reduce(const thread_block_tile<Size, Parent>& tile, T value, Operation&& combine,
         opsmith_place place = emulated::here()) {
  using namespace emulated;
  return emulated::reduce<T>(
      exchange(tile.lanes(), to_bits(value), "cooperative_groups::reduce", place), combine);
}

}  // namespace cooperative_groups
