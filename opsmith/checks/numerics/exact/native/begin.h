// From here on, the numbers of a source are never rounded.
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
#define float opsmith::exact::Float
#define double opsmith::exact::Double
