"""Kernels for half precision alone, and the kernel of a declared backward."""

from typing import Annotated

import pytest
import torch
from jaxtyping import Float
from torch import Tensor

import opsmith
from opsmith.checks.cases.case import Case
from opsmith.checks.cases.failure import Failure
from opsmith.checks.cases.settings import Settings
from opsmith.checks.catalogue.exact import compare_cases, compiled, prepare
from opsmith.checks.trial.trial import Trial

How = Annotated[int, opsmith.Between(0, 1)]


@opsmith.op("exact_tests::cubed")
def cubed(x: Float[Tensor, "N"], how: How) -> Float[Tensor, "N"]:
    return x**3


@opsmith.op("exact_tests::cubed_backward")
def cubed_backward(grad: Float[Tensor, "N"], x: Float[Tensor, "N"], how: How) -> Float[Tensor, "N"]:
    return 3 * x**2 * grad


cubed.register_kernel("cpu", source="cubed.cpp")
cubed_backward.register_kernel("cpu", source="cubed.cpp")
cubed.register_backward(cubed_backward, grads={"x": 0})


def case(how: int) -> Case:
    x = torch.tensor([0.3, -1.7, 2.2, 0.0], dtype=torch.float16)
    return Case(cubed.signature, {"x": x, "how": how})


@pytest.mark.slow(cases=1)  # the row is the same for both
@pytest.mark.parametrize("what", ["its gradient", "the kernel"])
def test_kernels_for_half_precision_are_proved_and_their_faults_are_found(what):
    cubed.build("cpu")  # the kernel's own dtypes decide for which the exact build is
    (subject,) = compiled(cubed)
    source = None if what == "the kernel" else cubed_backward.kernels["cpu"].entry
    ready = prepare(Trial(subject, "exact"), source)
    ready.check(case(0))
    assert (ready.cases, ready.elements, ready.undecided) == (1, 4, 0)
    with pytest.raises(Failure, match="is not the reference's formula, and so are 2 more of 4"):
        ready.check(case(1))


@pytest.mark.slow
def test_few_samples_are_more_than_the_first_which_is_nearly_empty():
    cubed.build("cpu")
    (subject,) = compiled(cubed)
    trial = Trial(subject, "exact", Settings(examples=1))
    ready = prepare(trial)
    compare_cases(trial, ready, lambda case: case.values["how"] == 0)
    assert ready.cases >= 4
    assert ready.elements > 8
