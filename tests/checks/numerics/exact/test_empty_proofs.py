"""A row `exact` that decided nothing is not green."""

import pytest
from jaxtyping import UInt8
from torch import Tensor

import opsmith
from opsmith import checks

pytestmark = pytest.mark.slow

SOURCE = """
#include <opsmith/kernel.h>

#include "inverted.h"

void inverted(const opsmith::Context& ctx, const empty_proofs::inverted_args& a) {
  for (int64_t n = 0; n < a.N; ++n) a.out[n] = 255 - a.x[n];
}
OPSMITH_KERNEL(empty_proofs, inverted, cpu)
"""


@opsmith.op("empty_proofs::inverted")
def inverted(x: UInt8[Tensor, "N"]) -> UInt8[Tensor, "N"]:
    return 255 - x


def test_a_proof_without_an_element_does_not_apply(tmp_path):
    source = tmp_path / "inverted.cpp"
    source.write_text(SOURCE)
    inverted.register_kernel("cpu", source=source)
    report = checks.run(inverted, select=["exact"], isolate=False, examples=2)
    said = "no case has results of real numbers that can be compared"
    assert (report.rows[-1].status, report.rows[-1].message) == ("not applicable", said)
    assert report.outcome == "incomplete"
