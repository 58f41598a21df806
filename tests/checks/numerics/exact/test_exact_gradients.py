"""Kernels for half precision alone, and the kernel of a declared backward."""

import pytest
import torch
from jaxtyping import Float
from torch import Tensor

import opsmith
from opsmith.checks.cases.case import Case
from opsmith.checks.cases.failure import Failure
from opsmith.checks.catalogue.exact import compiled, prepare
from opsmith.checks.trial import Trial


@opsmith.op("exact_tests::cubed")
def cubed(x: Float[Tensor, "N"], how: int) -> Float[Tensor, "N"]:
    return x**3


@opsmith.op("exact_tests::cubed_backward")
def cubed_backward(grad: Float[Tensor, "N"], x: Float[Tensor, "N"], how: int) -> Float[Tensor, "N"]:
    return 3 * x**2 * grad


cubed.register_kernel("cpu", source="cubed.cpp")
cubed_backward.register_kernel("cpu", source="cubed.cpp")
cubed.register_backward(cubed_backward, grads={"x": 0})


def case(how: int) -> Case:
    x = torch.tensor([0.3, -1.7, 2.2, 0.0], dtype=torch.float16)
    return Case(cubed.signature, {"x": x, "how": how})


@pytest.mark.slow
@pytest.mark.parametrize("what", ["the kernel", "its gradient"])
def test_kernels_for_half_precision_are_proved_and_their_faults_are_found(what):
    cubed.build("cpu")  # the kernel's own dtypes decide for which the exact build is
    (subject,) = compiled(cubed)
    source = None if what == "the kernel" else cubed_backward.kernels["cpu"].entry
    ready = prepare(Trial(subject, "exact"), source)
    ready.check(case(0))
    assert (ready.cases, ready.elements, ready.undecided) == (1, 4, 0)
    with pytest.raises(Failure, match="is not the reference's formula, and so are 2 more of 4"):
        ready.check(case(1))
