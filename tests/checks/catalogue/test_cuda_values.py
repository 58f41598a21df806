"""The row `cuda-on-cpu` draws values and sizes for which some kernels are wrong."""

import pytest
import torch
from jaxtyping import Float32
from torch import Tensor

import opsmith
from opsmith import checks

KERNEL = """
#include "rows.h"
#include <opsmith/cuda.h>
namespace {
template <int kFault>
__global__ void softmax(const float* x, float* out, int rows, int columns) {
  const int row = kFault == 3 ? blockIdx.y : blockIdx.x * 64 + threadIdx.x;
  if (row >= rows || (kFault == 3 && threadIdx.x != 0)) return;
  float most = -INFINITY, sum = 0;
  for (int i = 0; i < columns; ++i) {
    const float value = x[row * columns + i];
    most = kFault == 2 || !isnan(value) ? fmaxf(most, value) : NAN;
    if (kFault != 2 && isnan(value)) break;
  }
  if (kFault == 1) most = 0;
  for (int i = 0; i < columns; ++i) sum += expf(x[row * columns + i] - most);
  for (int i = 0; i < columns; ++i) {
    out[row * columns + i] = expf(x[row * columns + i] - most) / sum;
  }
}
}  // namespace
void rows(const opsmith::Context& ctx, const cuda_values::rows_args& a) {
  const int rows = static_cast<int>(a.R), columns = static_cast<int>(a.C);
  if (rows == 0 || columns == 0) return;
  const auto stream = opsmith::cuda_stream(ctx);
#if FAULT == 3
  softmax<3><<<dim3(1, rows), 32, 0, stream>>>(a.x.data(), a.out.data(), rows, columns);
#else
  softmax<FAULT><<<(rows + 63) / 64, 64, 0, stream>>>(a.x.data(), a.out.data(), rows, columns);
#endif
}
OPSMITH_KERNEL(cuda_values, rows, cuda)
"""


def row_of(tmp_path, fault):
    @opsmith.op("cuda_values::rows")
    def rows(x: Float32[Tensor, "R C"]) -> Float32[Tensor, "R C"]:
        return x.softmax(-1) if x.numel() else torch.zeros_like(x)

    (tmp_path / "rows.cu").write_text(KERNEL)
    rows.register_kernel("cuda", source=tmp_path / "rows.cu", flags=[f"-DFAULT={fault}"])
    report = checks.run(rows, select=["cuda-on-cpu"], examples=4, isolate=False)
    return next(row for row in report.rows if row.check == "cuda-on-cpu")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fault", "code"),
    [(0, ""), (1, "OPS-VALUE-RANGE"), (3, "OPS-CUDA-LAUNCH")],
    ids=["right", "no maximum", "rows along y"],
)
def test_a_softmax(tmp_path, fault, code):
    row = row_of(tmp_path, fault)
    assert (row.status, row.code) == (("failed", code) if code else ("passed", "")), row.explain()


DOUBLED = """
#include "doubled.h"
#include <opsmith/cuda.h>
__global__ void doubled(const float* x, float* out, int n) {
  const int i = blockIdx.x * 64 + threadIdx.x;
  if (i < n) out[i] = x[i] * 2;
}
void doubled(const opsmith::Context& ctx, const cuda_values::doubled_args& a) {
  if (a.A == 0 || a.B == 0 || a.C == 0 || a.E == 0) return;
  const int n = static_cast<int>(a.A * a.B * a.C * a.D * a.E);
  doubled<<<(n + 63) / 64, 64, 0, opsmith::cuda_stream(ctx)>>>(a.x.data(), a.out.data(), n);
}
OPSMITH_KERNEL(cuda_values, doubled, cuda)
"""


@pytest.mark.slow
def test_a_launch_of_no_blocks_is_found_whichever_size_is_zero(tmp_path):
    @opsmith.op("cuda_values::doubled")
    def doubled(x: Float32[Tensor, "A B C D E"]) -> Float32[Tensor, "A B C D E"]:
        return x * 2

    (tmp_path / "doubled.cu").write_text(DOUBLED)
    doubled.register_kernel("cuda", source=tmp_path / "doubled.cu")
    report = checks.run(doubled, select=["cuda-on-cpu"], examples=4, isolate=False)
    row = next(row for row in report.rows if row.check == "cuda-on-cpu")
    assert (row.status, row.code) == ("failed", "OPS-CUDA-LAUNCH"), row.explain()
    assert "a grid has at least one block" in row.explain()
    assert "cudaErrorInvalidConfiguration" in row.explain()
