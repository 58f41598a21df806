"""One file with the kernels of an operator and of its backward, as people write them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from jaxtyping import Float
from torch import Tensor

import opsmith


@opsmith.op("test_one_source::square")
def square(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    return x * x


@opsmith.op("test_one_source::square_backward")
def square_backward(grad: Float[Tensor, "N"], x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    return 2 * x * grad


SOURCE = "one_source/square.cpp"
# Options of its own for each, though one file has both kernels.
square.register_kernel("cpu", source=SOURCE, strided=("x",), flags=["-O1", "-DFACTOR=1"])
square_backward.register_kernel("cpu", source=SOURCE, flags=["-O1", "-DFACTOR=2"])
square.register_backward(square_backward, grads={"x": 0})


class Both(torch.nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return square(x) + square_backward(x, x)


@pytest.mark.slow
def test_each_operator_has_its_kernel_and_its_calls() -> None:
    x = torch.tensor([1.0, -3.0], requires_grad=True)
    before = [one.kernels["cpu"].calls for one in (square, square_backward)]
    (gradient,) = torch.autograd.grad(square(x).sum(), x)
    assert gradient.tolist() == [2, -6]
    after = [one.kernels["cpu"].calls for one in (square, square_backward)]
    assert [now - then for now, then in zip(after, before, strict=True)] == [1, 1]


@pytest.mark.slow
def test_each_operator_of_a_file_is_compiled_and_called_by_its_own_options() -> None:
    x = torch.tensor([1.0, 7.0, 3.0, 7.0])[::2]
    assert square(x).tolist() == [1, 9]
    assert square_backward(x, x).tolist() == [2, 18]


@pytest.mark.long
@pytest.mark.parametrize("target", ["aotinductor", "onnxruntime", "python"])
def test_other_runtimes_take_both_kernels(target: str, tmp_path: Path) -> None:
    x = torch.tensor([1.0, -3.0])
    if target != "python":
        opsmith.export(Both(), (x,), target=target, out=tmp_path / "out", form="library")
        given = opsmith.load(tmp_path / "out")(x)
    else:
        opsmith.export([square, square_backward], target=target, out=tmp_path / "out")
        loaded = opsmith.load(tmp_path / "out")
        given = loaded[square.name](x) + loaded[square_backward.name](x, x)
    assert given.tolist() == [3, 27]
