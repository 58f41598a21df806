"""Bits that differ from call to call are found in sizes that a slow reference has no time for."""

import itertools
from pathlib import Path

import pytest
from jaxtyping import Float32
from torch import Tensor

import opsmith
from opsmith import checks

KERNEL = """
#include <opsmith/kernel.h>

#include <atomic>
#include <cmath>

#include "steady.h"
#include "unsteady.h"

template <typename Arguments>
void halve(const Arguments& a, float factor) {
  for (int64_t n = 0; n < a.N; ++n) a.out[n] = std::ldexp(a.x[n], -10) * factor;
}

void steady(const opsmith::Context&, const slow_reference::steady_args& a) { halve(a, 1); }
OPSMITH_KERNEL(slow_reference, steady, cpu)

void unsteady(const opsmith::Context&, const slow_reference::unsteady_args& a) {
  static std::atomic<int> calls{0};
  halve(a, a.N > 300 && calls++ % 2 ? 1 + 1.2e-7f : 1);
}
OPSMITH_KERNEL(slow_reference, unsteady, cpu)
"""


def _halved(x: Tensor) -> Tensor:
    result = x.clone()
    for row in result:  # 10 calls for each place
        for _ in range(10):
            row *= 0.5
    return result


@opsmith.op("slow_reference::steady")
def steady(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
    return _halved(x)


@opsmith.op("slow_reference::unsteady")
def unsteady(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
    return _halved(x)


@pytest.mark.slow
def test_bits_are_compared_beyond_the_sizes_of_a_slow_reference(tmp_path: Path) -> None:
    (tmp_path / "halve.cpp").write_text(KERNEL)
    for operator in (steady, unsteady):
        operator.register_kernel("cpu", source=tmp_path / "halve.cpp")
    _, right = checks.run(steady, select=["determinism"]).rows
    assert right.status == "passed", right.message
    (note,) = right.notes
    assert note.startswith(
        "the reference loops in Python, or computes for all pairs, so results beyond N <= 600 "
    )
    assert note.endswith(" were compared with each other alone")
    _, wrong = checks.run(unsteady, select=["determinism"]).rows
    assert wrong.message.startswith("two equal calls gave different bits: the result[")
    assert "both are within the tolerance. If that is meant, tag the operator" in wrong.message
    assert wrong.case.startswith("x: float32 (1000,)")


def test_bits_that_differ_in_a_long_row_are_found_beside_many_dimensions() -> None:
    @opsmith.op("many_dims::doubled")
    def doubled(x: Float32[Tensor, "A B C D E F G H"]) -> Float32[Tensor, "A B C D E F G H"]:
        return x * 2

    calls = itertools.count()

    @doubled.register_kernel("cpu")
    def kernel(x: Tensor) -> Tensor:
        return x * (2 + (max(x.shape) > 256 and next(calls) % 2) * 2**-22)

    (row,) = checks.run(doubled, select=["determinism"], isolate=False).failures
    assert row.code == "OPS-DETERMINISM-REPEAT"
