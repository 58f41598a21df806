"""A row `exact` that decided nothing is not green."""

import pytest
from alone import row_alone
from jaxtyping import UInt8
from torch import Tensor

import opsmith
from opsmith.checks.run_report import Report

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
    found = row_alone(inverted, "exact", examples=2)
    said = "no case has results of real numbers that can be compared"
    assert (found.status, found.message) == ("not applicable", said)
    assert Report([found]).outcome == "incomplete"
