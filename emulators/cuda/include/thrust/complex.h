// Complex numbers, which PyTorch's convert to; the rest of Thrust is not supported.
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

template <typename T>
T abs(const complex<T>& z) {
  return std::abs(static_cast<const std::complex<T>&>(z));
}

#define OPSMITH_COMPLEX(name)                                 \
  template <typename T>                                       \
  complex<T> name(const complex<T>& z) {                      \
    return std::name(static_cast<const std::complex<T>&>(z)); \
  }
OPSMITH_COMPLEX(exp)
OPSMITH_COMPLEX(log)
OPSMITH_COMPLEX(log10)
OPSMITH_COMPLEX(sqrt)
OPSMITH_COMPLEX(sin)
OPSMITH_COMPLEX(cos)
OPSMITH_COMPLEX(tan)
OPSMITH_COMPLEX(asin)
OPSMITH_COMPLEX(acos)
OPSMITH_COMPLEX(atan)
OPSMITH_COMPLEX(sinh)
OPSMITH_COMPLEX(cosh)
OPSMITH_COMPLEX(tanh)
OPSMITH_COMPLEX(asinh)
OPSMITH_COMPLEX(acosh)
OPSMITH_COMPLEX(atanh)
OPSMITH_COMPLEX(proj)
#undef OPSMITH_COMPLEX

template <typename T, typename U>
auto pow(const complex<T>& base, const complex<U>& exponent) {
  using Common = decltype(T() * U());
  return complex<Common>(std::pow(std::complex<Common>(base.real(), base.imag()),
                                  std::complex<Common>(exponent.real(), exponent.imag())));
}
template <typename T, typename U>
auto pow(const complex<T>& base, const U& exponent) {
  return pow(base, complex<U>(exponent));
}
template <typename T, typename U>
auto pow(const T& base, const complex<U>& exponent) {
  return pow(complex<T>(base), exponent);
}

}  // namespace thrust
