"""Each variant of a kernel is checked, and a fault is told once, for the variant that has it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from jaxtyping import Float32
from torch import Tensor

import opsmith
from opsmith import bench, checks
from opsmith.checks.report.rows import Row

DOUBLED = """
#include <opsmith/kernel.h>
#include "doubled.h"
void doubled(const opsmith::Context&, const each_variant::doubled_args& a) {
  int64_t i = 0;
  for (; i + TILE <= a.N; i += TILE)
    for (int64_t j = i; j < i + TILE; ++j) a.out[j] = 2 * a.x[j];
#if 1
  for (; i < a.N; ++i) a.out[i] = 2 * a.x[i];
#endif
}
OPSMITH_KERNEL(each_variant, doubled, cpu)
"""

#: Each thread takes one element, and the shared memory has room for 64.
REVERSED = """
#include <opsmith/cuda.h>
#include "reversed.h"
__global__ void reverse(const float* x, float* out, int64_t n) {
  __shared__ float tile[64];
  const int64_t i = int64_t(blockIdx.x) * TILE + threadIdx.x;
  tile[threadIdx.x] = i < n ? x[i] : 0;
  __syncthreads();
  if (i < n) out[n - 1 - i] = tile[threadIdx.x];
}
void reversed(const opsmith::Context& ctx, const each_variant::reversed_args& a) {
  if (a.N == 0) return;
  reverse<<<(a.N + TILE - 1) / TILE, TILE, 0, cudaStream_t(ctx.stream())>>>(
      a.x.data(), a.out.data(), a.N);
}
OPSMITH_KERNEL(each_variant, reversed, cuda)
"""


@opsmith.op("each_variant::reversed")
def reversed_(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
    return x.flip(0)


reversed_.register_kernel("cuda", source=opsmith.cuda(REVERSED), variants={"TILE": (32, 64, 128)})


def declared(name: str, source: str, **variants: Sequence[int]) -> opsmith.DefinedOperator:
    @opsmith.op(f"each_variant::{name}")
    def doubled(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
        return x * 2

    source = opsmith.cpp(source.replace("doubled", name))
    doubled.register_kernel("cpu", source=source, variants=variants)
    return doubled


TAIL = declared(
    "tail", DOUBLED.replace("#if 1", "#if !UNROLLED"), TILE=(1, 8, 4), UNROLLED=(False, True)
)
WRONG = declared(
    "wrong", DOUBLED.replace("2 * a.x[j]", "(2 + SHIFT) * a.x[j]"), TILE=(1,), SHIFT=(0, 1)
)
WRONG.register_sizes({"N": 1000})
ALL_WRONG = declared("all_wrong", DOUBLED.replace("2 * a.x[j]", "a.x[j]"), TILE=(1, 2))


def outcomes(rows: list[Row], check: str) -> dict[str, str]:
    return {row.kernel: row.code or row.status for row in rows if row.check == check}


@pytest.mark.slow
def test_a_tail_that_one_variant_leaves_out_is_told_once_with_its_values():
    report = checks.run(TAIL, select=["bounds", "reference", "layouts"])
    assert outcomes(report.rows, "bounds") == {
        "cpu": "passed",
        "cpu[TILE=1,UNROLLED=1]": "passed",
        "cpu[TILE=8,UNROLLED=0]": "passed",
        "cpu[TILE=8,UNROLLED=1]": "OPS-RESULT-UNWRITTEN",
        "cpu[TILE=4,UNROLLED=0]": "passed",
        "cpu[TILE=4,UNROLLED=1]": "not run",
    }
    assert outcomes(report.rows, "layouts") == {"cpu": "passed"}
    (failure,) = report.failures
    assert "for the 'cpu[TILE=8,UNROLLED=1]' kernel" in report.explain()
    again = (row for row in report.rows if row.kernel == "cpu[TILE=4,UNROLLED=1]")
    assert {row.message for row in again if row.check == "bounds"} == {
        f"says the same as bounds of {failure.kernel}"
    }


@pytest.mark.slow
def test_a_kernel_in_cuda_is_emulated_in_each_variant():
    report = checks.run(reversed_, select=["cuda-on-cpu"])
    assert outcomes(report.rows, "cuda-on-cpu") == {
        "cuda": "passed",
        "cuda[TILE=64]": "passed",
        "cuda[TILE=128]": "OPS-CUDA-UNDEFINED",
    }


@pytest.mark.slow
def test_values_of_a_variant_are_compared_and_the_snippet_calls_it():
    report = checks.run(WRONG, select=["reference"])
    wrong = "cpu[TILE=1,SHIFT=1]"
    assert outcomes(report.rows, "reference") == {"cpu": "passed", wrong: "OPS-VALUE-WRONG"}
    assert f"= op.variant({wrong!r})(**ours)" in report.failures[0].snippet
    measured = bench.run([WRONG], only=["cpu kernel", wrong], rounds=1)
    found = {figure.name: figure.status for figure in measured.figures}
    assert (found["cpu kernel"], found[wrong]) == ("timed", "refused")


@pytest.mark.slow
def test_where_the_kernel_itself_fails_its_variants_do_not_run():
    report = checks.run(ALL_WRONG, select=["reference"])
    assert outcomes(report.rows, "reference") == {
        "cpu": "OPS-VALUE-WRONG",
        "cpu[TILE=2]": "not run",
    }
    assert report.rows[-1].message == "not run because of reference of cpu"
