"""Prove the right kernels in Ascend C without rounding, and find what computes another formula."""

import pytest
from ascendc_faults import COUNT, GROUPS, RIGHT
from jaxtyping import Float32
from torch import Generator, Tensor, rand

import opsmith
from opsmith.checks.cases.case import Case
from opsmith.checks.cases.failure import Failure
from opsmith.checks.catalogue.ascendc import kernels_in_ascendc
from opsmith.checks.catalogue.exact import prepare
from opsmith.checks.numerics.exact.language import exact_ascendc
from opsmith.checks.numerics.exact.memory import Handles
from opsmith.checks.trial.trial import Trial

#: It tells by a comparison whether a number was rounded to half.
ROUNDS = "powers_and_rests"
REARRANGED = GROUPS[-1]


@pytest.mark.slow(cases=1)  # each group is a library
@pytest.mark.parametrize("group", [REARRANGED, *RIGHT], ids=["rearranged", "flags", "rows"])
def test_a_right_kernel_is_proved_and_another_formula_is_found(group, tmp_path):
    def reference(x: Float32[Tensor, "N"], fault: str, wrong: bool) -> Float32[Tensor, "N"]:
        return group.faults[fault][0](x).clone()

    operator = opsmith.op(group.signature.qualname)(reference)
    operator.register_kernel("npu", source=group.source, language="ascendc")
    (subject,) = kernels_in_ascendc(operator)
    trial = Trial(subject, "exact-ascendc-on-cpu")
    ready = prepare(trial, emulate=exact_ascendc, memory=Handles(tmp_path))
    x = rand(COUNT, generator=Generator().manual_seed(COUNT)) + 0.25

    def said(name, wrong):
        before = ready.elements - ready.undecided
        try:
            ready.check(Case(operator.signature, {"x": x, "fault": name, "wrong": wrong}))
        except Failure:
            return "another formula"
        return "equal" if ready.elements - ready.undecided - before == COUNT else "undecided"

    right = {name: said(name, False) for name in group.faults if name != ROUNDS}
    assert right == dict.fromkeys(right, "equal")
    # Faults without a code end with wrong results, and nothing else.
    wrong = {
        name: said(name, True) for name, (_, *told) in group.faults.items() if told[:1] == [""]
    }
    assert wrong == dict.fromkeys(wrong, "another formula")
