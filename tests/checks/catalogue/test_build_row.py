"""The row `build` leaves nothing to be built within the time limit of a call."""

from pathlib import Path
from types import SimpleNamespace

import pytest
from jaxtyping import Float
from torch import Tensor

import opsmith
from opsmith import BuildError
from opsmith.checks.cases.failure import Failure
from opsmith.checks.catalogue import build as row


@opsmith.op("built::squared")
def squared(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    return x * x


@opsmith.op("built::squared_backward")
def squared_backward(grad: Float[Tensor, "N"], x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    return 2 * x * grad


squared.register_backward(squared_backward, grads={"x": 0})


@pytest.mark.parametrize("error", [None, BuildError("squared_backward.cpp:3: no such name")])
def test_a_backward_is_built_beside_the_kernel_whose_gradient_it_is(error, monkeypatch):
    built = []

    def build(device: str) -> list[Path]:
        built.append(device)
        if error is not None:
            raise error  # the row of the backward itself shows it
        return []

    monkeypatch.setattr(squared_backward, "build", build)
    subject = SimpleNamespace(device="cpu", dtypes=("float32",), build=lambda: None)
    trial = SimpleNamespace(
        operator=squared, subject=subject, signature=squared.signature, notes=[]
    )
    row.build(trial)
    assert built == ["cpu"]


def test_a_kernel_for_none_of_the_declared_dtypes_is_told_how_complex_ones_are_named(monkeypatch):
    monkeypatch.setattr(squared_backward, "build", lambda device: [])
    kernel = SimpleNamespace(dtypes=("complex64", "complex128"))
    subject = SimpleNamespace(device="cpu", dtypes=(), implementation=kernel, build=lambda: None)
    trial = SimpleNamespace(operator=squared, subject=subject, signature=squared.signature)
    with pytest.raises(Failure, match=r"compiled for complex64, complex128, and .*: float, double"):
        row.build(trial)
