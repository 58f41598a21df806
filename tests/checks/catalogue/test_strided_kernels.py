"""CUDA kernels that take tensors as they lie in memory, emulated on the CPU."""

from pathlib import Path

import pytest
from jaxtyping import Float32
from torch import Tensor

import opsmith
from opsmith import checks

KERNEL = """\
#include "{name}.h"

#include <opsmith/cuda.h>

__global__ void copy(const float* x, int64_t n, int64_t m, int64_t rows, int64_t columns,
                     float* out) {{
  const int64_t i = blockIdx.x * int64_t{{blockDim.x}} + threadIdx.x;
  if (i < n * m) out[i] = x[{index}];
}}

void {name}(const opsmith::Context& ctx, const strided_cuda::{name}_args& a) {{
  if (a.out.numel() == 0) return;
  opsmith::launch(ctx, copy, opsmith::blocks_for(a.out.numel(), 64), 64, 0, a.x.data(), a.N, a.M,
                  a.x.stride(0), a.x.stride(1), a.out.data());
}}
OPSMITH_KERNEL(strided_cuda, {name}, cuda)
"""


@pytest.mark.slow(cases=1)  # a library each
@pytest.mark.parametrize(
    ("name", "index", "status"),
    [("follows", "i / m * rows + i % m * columns", "passed"), ("forgets", "i", "failed")],
)
def test_a_kernel_that_takes_strides_gets_tensors_in_every_layout(
    tmp_path: Path, name: str, index: str, status: str
) -> None:
    def copy(x: Float32[Tensor, "N M"]) -> Float32[Tensor, "N M"]:
        return x.clone()

    operator = opsmith.op(f"strided_cuda::{name}")(copy)
    source = tmp_path / f"{name}.cu"
    source.write_text(KERNEL.format(name=name, index=index))
    operator.register_kernel("cuda", source=source, strided=True)
    report = checks.run(operator, select=["cuda-on-cpu"], examples=8)
    (row,) = [row for row in report.rows if row.check == "cuda-on-cpu"]
    assert row.status == status, row.message
