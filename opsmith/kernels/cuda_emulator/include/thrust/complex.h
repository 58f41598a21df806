// Complex numbers that PyTorch's convert to; the rest of Thrust is not supported.
#pragma once

#include <complex>

namespace thrust {

template <typename T>
struct complex : std::complex<T> {
  using std::complex<T>::complex;
  complex(const std::complex<T>& other) : std::complex<T>(other) {}
  template <typename U>
  explicit complex(const complex<U>& other)
      : std::complex<T>(static_cast<T>(other.real()), static_cast<T>(other.imag())) {}
};

template <typename T>
complex<T> polar(const T& magnitude, const T& angle) {
  return std::polar(magnitude, angle);
}

}  // namespace thrust
