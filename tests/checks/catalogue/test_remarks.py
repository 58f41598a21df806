"""A fault that a doubtful value led to is told with it."""

import pytest
from jaxtyping import Float32
from torch import Tensor

import opsmith
from opsmith import checks

#: The last lane asks one that has returned where it is to read.
KERNEL = """
#include "chained.h"
#include <opsmith/cuda.h>
__global__ void follow(const float* x, float* out, int count) {
  const int lane = threadIdx.x;
  if (lane >= count) return;
  const int next = __shfl_sync(0xffffffff, lane, lane + 1);
  out[lane] = x[next];
}
void chained(const opsmith::Context& ctx, const remarks::chained_args& a) {
  const int count = static_cast<int>(a.N);
  if (count < 32) {
    follow<<<1, 32, 0, opsmith::cuda_stream(ctx)>>>(a.x.data(), a.out.data(), count);
  }
}
OPSMITH_KERNEL(remarks, chained, cuda)
"""


@pytest.mark.slow
def test_an_address_that_no_lane_brought_is_told_with_the_shuffle(tmp_path):
    @opsmith.op("remarks::chained", where="N >= 1")
    def chained(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
        return x.roll(-1)

    (tmp_path / "chained.cu").write_text(KERNEL)
    chained.register_kernel("cuda", source=tmp_path / "chained.cu")
    report = checks.run(chained, select=["cuda-on-cpu"], examples=4, isolate=False)
    row = next(row for row in report.rows if row.check == "cuda-on-cpu")
    assert row.code.startswith("OPS-MEMORY"), row.explain()
    first, second = row.explain().split("after this, which may be the cause: ")
    assert "of argument 'x'" in first and "chained.cu:8" in first
    assert "__shfl_sync took the value of lane" in second and "chained.cu:7" in second
