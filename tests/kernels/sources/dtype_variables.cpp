// Kernels over several dtype variables; one reads 64-bit indices as if they had 32 bits.
#include <opsmith/kernel.h>
#include "decayed.h"
#include "picked.h"
#include "picked_narrow.h"
#include "turned.h"

template <typename T, typename Ids>
void picked(const opsmith::Context&, const dtype_variables::picked_args<T, Ids>& a) {
  for (int64_t p = 0; p < a.P; ++p)
    for (int64_t c = 0; c < a.C; ++c) a.out[p * a.C + c] = a.weight[a.ids[p] * a.C + c];
}
OPSMITH_KERNEL(dtype_variables, picked, cpu, (float, double), (int32_t, int64_t))

template <typename T, typename Ids>
void picked_narrow(const opsmith::Context&, const dtype_variables::picked_narrow_args<T, Ids>& a) {
  const auto* ids = reinterpret_cast<const int32_t*>(a.ids.data());
  for (int64_t p = 0; p < a.P; ++p)
    for (int64_t c = 0; c < a.C; ++c) a.out[p * a.C + c] = a.weight[ids[p] * a.C + c];
}
OPSMITH_KERNEL(dtype_variables, picked_narrow, cpu, (float, double), (int32_t, int64_t))

template <typename State, typename T>
void decayed(const opsmith::Context&, const dtype_variables::decayed_args<State, T>& a) {
  for (int64_t i = 0; i < a.N; ++i)
    a.out[i] = a.state[i] * static_cast<State>(0.5) + static_cast<State>(a.x[i]);
}
OPSMITH_KERNEL(dtype_variables, decayed, cpu, opsmith::types<float, opsmith::half>,
               opsmith::types<float, float>, opsmith::types<double, double>)

template <typename T>
void turned(const opsmith::Context&, const dtype_variables::turned_args<T>& a) {
  for (int64_t i = 0; i < a.N; ++i) {
    a.out0[i] = a.x[i] * opsmith::complex<T>(a.w[i].real(), a.w[i].imag());
    a.out1[i] = a.x[i] + a.w[i].real();
  }
}
OPSMITH_KERNEL(dtype_variables, turned, cpu, float, double)
