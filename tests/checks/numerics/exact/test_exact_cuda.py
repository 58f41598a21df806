"""CUDA kernels on the emulator: atomics, shuffles, shared memory and half2 take exact numbers."""

import pytest
import torch
from jaxtyping import Float
from torch import Tensor

import opsmith
from opsmith.checks.cases.case import Case
from opsmith.checks.cases.failure import Failure
from opsmith.checks.catalogue.cuda import kernels_in_cuda
from opsmith.checks.catalogue.exact import prepare
from opsmith.checks.numerics.exact.language import exact_emulated
from opsmith.checks.trial.trial import Trial


@opsmith.op("exact_tests::reduced")
def reduced(x: Float[Tensor, "N C"], w: Float[Tensor, "C"], how: int) -> Float[Tensor, "N"]:
    return (x * w).sum(1)


reduced.register_kernel("cuda", source="reduced.cu")


def case(how: int) -> Case:
    generator = torch.Generator().manual_seed(0)
    x, w = (torch.randn(shape, generator=generator) for shape in ((2, 150), (150,)))
    return Case(reduced.signature, {"x": x, "w": w.abs(), "how": how})


@pytest.mark.slow
def test_a_cuda_kernel_is_proved_and_its_faults_are_found():
    (subject,) = kernels_in_cuda(reduced)
    ready = prepare(Trial(subject, "exact-cuda-on-cpu"), emulate=exact_emulated)
    ready.check(case(0))
    assert (ready.cases, ready.elements, ready.undecided) == (1, 2, 0)
    for how in (1, 2, 3):
        with pytest.raises(Failure, match="is not the reference's formula"):
            ready.check(case(how))
