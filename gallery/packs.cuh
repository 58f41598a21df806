// What CUDA kernels share: as many elements as one load takes, and what they are computed in.
#pragma once

#include <opsmith/cuda.h>

#include <cstdint>
#include <type_traits>

namespace gallery {

// Half types are computed in float.
template <typename T>
using Sum = std::conditional_t<std::is_same_v<T, double>, double, float>;

// As many elements as one load takes.
template <typename T, int kCount>
struct alignas(sizeof(T) * kCount) Pack {
  T items[kCount];
};
template <typename T>
inline constexpr int kPack = 16 / sizeof(T);

template <typename... Pointers>
bool are_aligned(Pointers... pointers) {
  return ((reinterpret_cast<uintptr_t>(pointers) % 16 == 0) && ...);
}

}  // namespace gallery
