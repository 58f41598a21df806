// The functions of <cmath> for numbers that are never rounded: by their laws where the field has
// them, else as functions of which nothing is known.
#pragma once

#include "number.h"

#include <cmath>

namespace opsmith::exact {

inline Content valued(Content a, double value) {
  if (is_finite(a) && std::isfinite(value)) a.value = value;
  return a;
}
inline Content ln2() { return logarithm(number_of(2)); }

namespace functions {

inline Content exp(Content a) { return exponential(a); }
inline Content exp2(Content a) {
  return valued(exponential(multiply(a, ln2())), std::exp2(a.value));
}
inline Content expm1(Content a) {
  return valued(subtract(exponential(a), number_of(1)), std::expm1(a.value));
}
inline Content log(Content a) { return logarithm(a); }
inline Content log2(Content a) { return valued(divide(logarithm(a), ln2()), std::log2(a.value)); }
inline Content log10(Content a) {
  return valued(divide(logarithm(a), logarithm(number_of(10))), std::log10(a.value));
}
inline Content log1p(Content a) {
  return valued(logarithm(add(a, number_of(1))), std::log1p(a.value));
}
inline Content sqrt(Content a) { return square_root(a); }
inline Content rsqrt(Content a) { return divide(number_of(1), square_root(a)); }
inline Content tanh(Content a) {
  const Content twice = exponential(add(a, a));
  return valued(subtract(number_of(1), divide(number_of(2), add(twice, number_of(1)))),
                std::tanh(a.value));
}
inline Content sinh(Content a) {
  const Content e = exponential(a);
  return valued(divide(subtract(e, divide(number_of(1), e)), number_of(2)), std::sinh(a.value));
}
inline Content cosh(Content a) {
  const Content e = exponential(a);
  return valued(divide(add(e, divide(number_of(1), e)), number_of(2)), std::cosh(a.value));
}
inline Content sigmoid(Content a) {
  return divide(number_of(1), add(number_of(1), exponential(negative(a))));
}
inline Content fabs(Content a) { return absolute(a); }
inline Content neg(Content a) { return negative(a); }
inline Content floor(Content a) { return rounded<std::floor>(a); }
inline Content ceil(Content a) { return rounded<std::ceil>(a); }
inline Content trunc(Content a) { return rounded<std::trunc>(a); }
inline Content round(Content a) { return rounded<std::round>(a); }
inline Content rint(Content a) { return rounded<std::rint>(a); }
inline Content nearbyint(Content a) { return rounded<std::rint>(a); }

inline Content erf(Content a) { return uninterpreted<Parity::odd>(a, std::erf(a.value), 1); }
inline Content erfc(Content a) {
  return valued(subtract(number_of(1), erf(a)), std::erfc(a.value));
}
inline Content sin(Content a) { return uninterpreted<Parity::odd>(a, std::sin(a.value), 2); }
inline Content cos(Content a) {
  return is_zero(resolved(a)) ? number_of(1) : uninterpreted<Parity::even>(a, std::cos(a.value), 3);
}
inline Content tan(Content a) { return valued(divide(sin(a), cos(a)), std::tan(a.value)); }
inline Content asin(Content a) { return uninterpreted<Parity::odd>(a, std::asin(a.value), 4); }
inline Content acos(Content a) { return uninterpreted<Parity::none>(a, std::acos(a.value), 5); }
inline Content atan(Content a) { return uninterpreted<Parity::odd>(a, std::atan(a.value), 6); }
inline Content asinh(Content a) { return uninterpreted<Parity::odd>(a, std::asinh(a.value), 7); }
inline Content acosh(Content a) { return uninterpreted<Parity::none>(a, std::acosh(a.value), 8); }
inline Content atanh(Content a) { return uninterpreted<Parity::odd>(a, std::atanh(a.value), 9); }
inline Content lgamma(Content a) {
  return uninterpreted<Parity::none>(a, std::lgamma(a.value), 10);
}
inline Content tgamma(Content a) {
  return uninterpreted<Parity::none>(a, std::tgamma(a.value), 11);
}
inline Content cbrt(Content a) { return uninterpreted<Parity::odd>(a, std::cbrt(a.value), 12); }

inline Content pow(Content a, Content b) { return raised(a, b); }
inline Content hypot(Content a, Content b) {
  return valued(square_root(add(multiply(a, a), multiply(b, b))), std::hypot(a.value, b.value));
}
inline Content fmod(Content a, Content b) { return subtract(a, multiply(b, trunc(divide(a, b)))); }
inline Content fmax(Content a, Content b) {
  return std::isnan(a.value) ? resolved(b) : order(a, b) == -1 ? resolved(b) : resolved(a);
}
inline Content fmin(Content a, Content b) {
  return std::isnan(a.value) ? resolved(b) : order(a, b) == 1 ? resolved(b) : resolved(a);
}
inline Content fdim(Content a, Content b) {
  return order(a, b) == 1 ? subtract(a, b) : number_of(0);
}
inline Content copysign(Content a, Content b) {
  return std::signbit(a.value) == std::signbit(b.value) ? resolved(a) : negative(a);
}
inline Content atan2(Content a, Content b) {
  a = resolved(a), b = resolved(b);
  const Content whole = uninterpreted<Parity::none>(a, 0.5, 13);
  const Content other = uninterpreted<Parity::none>(b, 0.5, 14);
  return valued(multiply(whole, other), std::atan2(a.value, b.value));
}

}  // namespace functions

// One argument, then two; each also with an f behind its name.
// clang-format off
#define OPSMITH_EXACT_FUNCTIONS(F)                                                            \
  F(exp) F(exp2) F(expm1) F(log) F(log2) F(log10) F(log1p) F(sqrt) F(tanh) F(sinh) F(cosh)    \
  F(fabs) F(floor) F(ceil) F(trunc) F(round) F(rint) F(nearbyint) F(erf) F(erfc) F(sin)       \
  F(cos) F(tan) F(asin) F(acos) F(atan) F(asinh) F(acosh) F(atanh) F(lgamma) F(tgamma) F(cbrt)
#define OPSMITH_EXACT_FUNCTIONS_OF_TWO(F) \
  F(pow) F(hypot) F(fmod) F(fmax) F(fmin) F(fdim) F(copysign) F(atan2)
// clang-format on

}  // namespace opsmith::exact
