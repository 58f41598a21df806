"""A CUDA kernel is proved on the CPU whatever becomes of the operator's other kernels."""

import pytest
from jaxtyping import Float
from torch import Tensor

import opsmith
from opsmith import checks

KERNEL = """
#include <opsmith/cuda.h>
#include "doubled.h"
__global__ void twice(const float* x, float* out, int64_t n) {
  const int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (i < n) out[i] = 2 * x[i];
}
template <typename T>
void doubled(const opsmith::Context& ctx, const beside_cuda::doubled_args<T>& a) {
  if (a.N > 0) {
    opsmith::launch(ctx, twice, opsmith::blocks_for(a.N, 64), 64, 0, a.x.data(), a.out.data(), a.N);
  }
}
OPSMITH_KERNEL(beside_cuda, doubled, cuda, float)
"""


@pytest.mark.long  # builds three libraries; test_cuda_values.py proves a CUDA kernel
def test_a_cuda_kernel_is_proved_where_the_kernel_for_the_cpu_does_not_build(tmp_path):
    @opsmith.op("beside_cuda::doubled")
    def doubled(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
        return x * 2

    (tmp_path / "doubled.cpp").write_text("#error not yet")
    (tmp_path / "doubled.cu").write_text(KERNEL)
    doubled.register_kernel("cpu", source=tmp_path / "doubled.cpp")
    doubled.register_kernel("cuda", source=tmp_path / "doubled.cu")
    report = checks.run(doubled, select=["reference", "cuda-on-cpu"], examples=4, isolate=False)
    rows = {(row.kernel, row.check): row for row in report.rows}
    assert rows["cpu", "build"].status == "failed"
    assert rows["cpu", "reference"].message == "not built"
    proved = rows["cuda", "cuda-on-cpu"]
    assert (proved.status, proved.message) == ("passed", "")
    assert proved.cases
