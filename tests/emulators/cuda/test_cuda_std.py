"""Take numbers, arrays and tuples from cuda::std, and CUDA's special functions, in kernels."""

from pathlib import Path

import pytest
import torch
from alone import row_alone
from jaxtyping import Float, Float32
from torch import Tensor

import emulators.cuda
import opsmith
from opsmith import checks

HEADERS = sorted((Path(emulators.cuda.__file__).parent / "include" / "cuda" / "std").iterdir())
IN_CUDA = """\
#include "clamped_range.h"

INCLUDES
#include <opsmith/cuda.h>

__device__ cuda::std::tuple<float, float> smaller_and_larger(const float* x, int64_t columns) {
  float smallest = cuda::std::numeric_limits<float>::infinity();
  float largest = -smallest;
  for (int64_t c = 0; c < columns; ++c) {
    if (cuda::std::isnan(x[c])) return {x[c], x[c]};
    smallest = cuda::std::min(smallest, x[c]);
    largest = cuda::std::max(largest, x[c]);
  }
  return {smallest, largest};
}

__global__ void range(const float* x, float* out, int64_t rows, int64_t columns) {
  const int64_t row = blockIdx.x * blockDim.x + threadIdx.x;
  if (row >= rows) return;
  const auto [smallest, largest] = smaller_and_larger(x + row * columns, columns);
  const cuda::std::array<float, 2> both{smallest, largest};
  static_assert(cuda::std::is_same_v<decltype(both)::value_type, float>);
  out[row] = cuda::std::abs(both[1] - both[0]);
}

void clamped_range(const opsmith::Context& ctx, const cuda_std::clamped_range_args& a) {
  if (a.N == 0) return;
  range<<<(a.N + 63) / 64, 64, 0, opsmith::cuda_stream(ctx)>>>(a.x.data(), a.out.data(), a.N, a.C);
}
OPSMITH_KERNEL(cuda_std, clamped_range, cuda)
"""


@pytest.mark.slow
def test_a_kernel_takes_what_it_needs_from_libcu(tmp_path) -> None:
    @opsmith.op("cuda_std::clamped_range", where=("C >= 1",))
    def clamped_range(x: Float32[Tensor, "N C"]) -> Float32[Tensor, "N"]:
        return x.amax(1) - x.amin(1)

    includes = "\n".join(f"#include <cuda/std/{header.name}>" for header in HEADERS)
    path = tmp_path / "clamped_range.cu"
    path.write_text(IN_CUDA.replace("INCLUDES", includes))
    clamped_range.register_kernel("cuda", source=path)
    report = checks.run(clamped_range, select=["cuda-on-cpu"], examples=6)
    (row,) = (row for row in report.rows if row.check == "cuda-on-cpu")
    assert (row.status, row.code) == ("passed", ""), row.message
    assert row.cases > 0


SPECIAL = """\
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
    (tmp_path / "special.cu").write_text(SPECIAL)
    special.register_kernel("cuda", source=tmp_path / "special.cu")
    row = row_alone(special, "cuda-on-cpu")
    assert row.status == "passed", row.explain()
