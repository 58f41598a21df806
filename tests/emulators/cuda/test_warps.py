"""Warps of 64 threads, and HIP's names: what only holds for warps of 32 is found."""

import pytest
from jaxtyping import Float32
from torch import Tensor
from typer.testing import CliRunner

import opsmith
from opsmith import checks
from opsmith.cli.app import app

#: A block of 64 threads for each row.
IN_CUDA = """\
#include "row_sum.h"

#include <opsmith/cuda.h>

__global__ void sum_row(const float* x, float* out, int64_t columns) {
  float sum = 0;
  for (int64_t c = threadIdx.x; c < columns; c += 64) sum += x[blockIdx.x * columns + c];
  __shared__ float parts[2];
  for (int offset = 16; offset > 0; offset /= 2) sum += __shfl_down_sync(MASK, sum, offset);
  if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
  __syncthreads();
  if (threadIdx.x == 0) out[blockIdx.x] = parts[0] + parts[1];
}

void row_sum(const opsmith::Context& ctx, const warps::row_sum_args& a) {
  if (a.N == 0) return;
  sum_row<<<a.N, 64, 0, opsmith::cuda_stream(ctx)>>>(a.x.data(), a.out.data(), a.C);
}
OPSMITH_KERNEL(warps, row_sum, cuda)
"""
#: A warp for each row, however many threads it has.
IN_HIP = """\
#include "row_sum.h"

#include <hip/hip_runtime.h>
#include <opsmith/cuda.h>

__global__ void sum_row(const float* x, float* out, int64_t columns) {
  float sum = 0;
  const int64_t row = hipBlockIdx_x;
  for (int64_t c = hipThreadIdx_x; c < columns; c += hipBlockDim_x) sum += x[row * columns + c];
  for (int offset = warpSize / 2; offset > 0; offset /= 2) sum += __shfl_down(sum, offset);
  if (__lane_id() == 0) out[row] = sum;
}

void row_sum(const opsmith::Context& ctx, const warps::row_sum_args& a) {
  if (a.N == 0) return;
  hipDeviceProp_t properties;
  if (hipGetDeviceProperties(&properties, 0) != hipSuccess) return;
  hipLaunchKernelGGL(sum_row, dim3(a.N), dim3(properties.warpSize), 0, opsmith::cuda_stream(ctx),
                     a.x.data(), a.out.data(), a.C);
}
OPSMITH_KERNEL(warps, row_sum, cuda)
"""


@pytest.fixture
def row_sum(tmp_path):
    """Declare the operator with a kernel."""

    def declare(text: str) -> opsmith.Operator:
        @opsmith.op("warps::row_sum")
        def row_sum(x: Float32[Tensor, "N C"]) -> Float32[Tensor, "N"]:
            return x.sum(1)

        path = tmp_path / "row_sum.cu"
        path.write_text(text)
        row_sum.register_kernel("cuda", source=path)
        return row_sum

    return declare


def checked(operator: opsmith.Operator, warp: int) -> checks.Row:
    report = checks.run(operator, select=["cuda-on-cpu"], warp=warp, examples=12)
    (row,) = (row for row in report.rows if row.check == "cuda-on-cpu")
    assert ("with warps of 64 threads" in row.notes) == (warp == 64)
    return row


@pytest.mark.slow
def test_a_mask_of_32_lanes_leaves_out_half_of_a_warp_of_64(row_sum) -> None:
    row = checked(row_sum(IN_CUDA.replace("MASK", "0xffffffff")), 64)
    assert (row.status, row.code) == ("failed", "OPS-CUDA-BARRIER")
    assert "__shfl_down_sync with mask 0x00000000ffffffff, which leaves out its own" in row.message
    assert row.command.endswith("--warp 64") or not row.command


@pytest.mark.long
@pytest.mark.parametrize("warp", [32, 64])
@pytest.mark.parametrize("text", [IN_HIP, IN_CUDA.replace("MASK", "~0ull")])
def test_a_kernel_for_warps_of_any_size_passes(row_sum, text: str, warp: int) -> None:
    row = checked(row_sum(text), warp)
    assert row.status == "passed", row.message


@pytest.mark.slow
def test_a_kernel_in_hip_runs_and_nvcc_is_not_asked(row_sum) -> None:
    operator = row_sum(IN_HIP)
    assert checked(operator, 64).status == "passed"
    report = checks.run(operator, select=["nvcc"])
    (row,) = (row for row in report.rows if row.check == "nvcc")
    assert (row.status, row.message) == (
        "not applicable",
        "the source is in HIP, which nvcc does not compile",
    )


def test_a_warp_of_another_size_is_refused() -> None:
    result = CliRunner().invoke(app, ["check", "x.py", "--warp", "48"])
    assert result.exit_code == 2
    assert "48: a warp has 32 or 64 threads" in " ".join(result.output.replace("│", " ").split())
