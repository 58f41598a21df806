"""An addition to half numbers by atomicCAS of the word around them is right at both ends."""

from typing import Annotated

import pytest
import torch
from jaxtyping import Float16, Int64
from torch import Tensor

import opsmith
from opsmith import Index, checks

KERNEL = """
#include "added.h"
#include <cuda_fp16.h>
#include <opsmith/cuda.h>
__device__ void add(__half* to, __half value) {
  const bool high = (reinterpret_cast<size_t>(to) & 2) != 0;
  auto* word = reinterpret_cast<unsigned*>(reinterpret_cast<char*>(to) - (high ? 2 : 0));
  unsigned old = *word, assumed;  // READ
  do {
    assumed = old;
    const auto bits = static_cast<unsigned short>(high ? old >> 16 : old & 0xffff);
    const unsigned sum = __half_as_ushort(__hadd(__ushort_as_half(bits), value));
    const unsigned next = high ? (old & 0xffff) | sum << 16 : (old & 0xffff0000) | sum;
    old = EXCHANGE;
  } while (assumed != old);
}
__global__ void added(__half* out, const __half* x, const int64_t* at, int n) {
  const int i = blockIdx.x * 64 + threadIdx.x;
  if (i < n) add(out + at[i], x[i]);
}
void added(const opsmith::Context& ctx, const shared_words::added_args& a) {
  if (a.N == 0) return;
  const int n = static_cast<int>(a.N);
  added<<<(n + 63) / 64, 64, 0, opsmith::cuda_stream(ctx)>>>(
      reinterpret_cast<__half*>(a.out.data()), reinterpret_cast<const __half*>(a.x.data()),
      a.at.data(), n);
}
OPSMITH_KERNEL(shared_words, added, cuda)
"""
ATOMIC = "atomicCAS(word, assumed, next)"


@pytest.mark.slow(cases=2)
@pytest.mark.parametrize(
    ("exchange", "code"),
    [(ATOMIC, ""), ("assumed, *word = next", "OPS-MEMORY-BOUNDS")],
    ids=["atomic", "plain"],
)
def test_halves_are_added_by_the_word(tmp_path, exchange, code):
    @opsmith.op("shared_words::added", mutates_args=("out",))
    def added(
        out: Float16[Tensor, "S"],
        x: Float16[Tensor, "N"],
        at: Annotated[Int64[Tensor, "N"], Index("S")],
    ) -> None:
        out.index_add_(0, at, x)

    @added.register_cases(only=True)
    def _(dtype, seed):
        for size, count in ((1, 1), (5, 9), (8, 40), (33, 90)):
            yield {
                "out": torch.randint(-4, 5, (size,)).half(),
                "x": torch.randint(-3, 4, (count,)).half(),
                "at": torch.randint(0, size, (count,)),
            }

    (tmp_path / "added.cu").write_text(KERNEL.replace("EXCHANGE", exchange))
    added.register_kernel("cuda", source=tmp_path / "added.cu")
    report = checks.run(added, select=["cuda-on-cpu"], isolate=False)
    row = next(row for row in report.rows if row.check == "cuda-on-cpu")
    assert (row.status, row.code) == ("failed" if code else "passed", code), row.explain()
    if code:
        line = 1 + KERNEL[: KERNEL.index("// READ")].count("\n")
        assert f"added.cu:{line}" in row.explain()
