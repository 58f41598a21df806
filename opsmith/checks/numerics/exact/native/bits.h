// From here on, what would show the bits of a number does not compile.
#pragma once

namespace std {
template <typename To, typename From>
inline To* opsmith_exact_memcpy(To* to, const From* from, size_t bytes) {
  return opsmith::exact::memcpy_of(to, from, bytes);
}
}  // namespace std
using std::opsmith_exact_memcpy;

#define memcpy opsmith_exact_memcpy
#define memmove opsmith_exact_memcpy
#define reinterpret_cast opsmith::exact::recast
