// Memory of a device that is not there: the host's, under addresses that it cannot read. Whoever
// takes one for the host's dies.
#pragma once

#include <cstdint>

inline constexpr uintptr_t device_bit = uintptr_t{1} << 62;

template <typename T>
T* to_device(T* memory) {
  return memory == nullptr ? nullptr
                           : reinterpret_cast<T*>(reinterpret_cast<uintptr_t>(memory) | device_bit);
}

// What "device code" reads; what is no device's memory it cannot read either.
template <typename T>
T* on_device(T* memory) {
  return reinterpret_cast<T*>(reinterpret_cast<uintptr_t>(memory) ^ device_bit);
}
