"""CUDA's special functions, which the host's C++ lacks, in an emulated kernel."""

import pytest
import torch
from alone import row_alone
from jaxtyping import Float
from torch import Tensor

import opsmith

KERNEL = """\
#include "special.h"
#include <cuda_fp16.h>
#include <opsmith/cuda.h>

template <typename T>
__global__ void each(const T* x, T* out, int64_t n) {
  const int64_t i = blockIdx.x * 64 + threadIdx.x;
  if (i >= n) return;
  T* row = out + 8 * i;
  if constexpr (sizeof(T) == 8) {
    row[0] = erfinv(x[i]), row[1] = erfcinv(x[i]), row[2] = normcdfinv(x[i]);
    row[3] = erfcx(40 * x[i]), row[4] = cyl_bessel_i0(x[i]), row[5] = norm4d(x[i], 1, 2, 3);
    sincospi(x[i], &row[6], &row[7]);
  } else {
    row[0] = erfinvf(x[i]), row[1] = erfcinvf(x[i]), row[2] = normcdfinvf(x[i]);
    row[3] = erfcxf(40 * x[i]), row[4] = cyl_bessel_i0f(x[i]), row[5] = norm4df(x[i], 1, 2, 3);
    sincospif(x[i], &row[6], &row[7]);
  }
}
template <typename T>
void special(const opsmith::Context& ctx, const cuda_math::special_args<T>& a) {
  if (a.N == 0) return;
  each<T><<<(a.N + 63) / 64, 64, 0, opsmith::cuda_stream(ctx)>>>(a.x.data(), a.out.data(), a.N);
}
OPSMITH_KERNEL(cuda_math, special, cuda, float, double)
"""


@opsmith.op("cuda_math::special")
def special(x: Float[Tensor, "N"]) -> Float[Tensor, "N 8"]:
    turn, of = torch.pi * x, torch.special
    norm = (x * x + 14).sqrt()
    wide = [of.erfinv(x), of.erfinv(1 - x), of.ndtri(x), of.erfcx(40 * x), of.i0(x), norm]
    return torch.stack([*wide, turn.sin(), turn.cos()], -1)


@special.register_cases(only=True)
def _(dtype, seed):
    yield {"x": torch.linspace(0.0625, 0.9375, 29, dtype=dtype)}


@pytest.mark.slow
def test_special_functions_are_those_of_cuda(tmp_path):
    (tmp_path / "special.cu").write_text(KERNEL)
    special.register_kernel("cuda", source=tmp_path / "special.cu")
    row = row_alone(special, "cuda-on-cpu")
    assert row.status == "passed", row.explain()
