"""`grouped_linear` multiplies each row by its expert's matrix, in a mixture of experts too."""

import re
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from gallery.grouped_linear.grouped_linear import grouped_linear, grouped_linear_backward

GALLERY = Path(__file__).parents[2] / "gallery"
LENGTHS = [0, 3, 0, 130, 1, 0]


def arguments(dtype: torch.dtype, k: int = 7, n: int = 300) -> tuple[Tensor, Tensor, Tensor]:
    x, weight = torch.randn(sum(LENGTHS), k), torch.randn(len(LENGTHS), k, n)
    offsets = torch.tensor([0, *LENGTHS]).cumsum(0).int()
    return x.to(dtype), weight.to(dtype), offsets


def row_by_row(x: Tensor, weight: Tensor, offsets: Tensor) -> Tensor:
    """The matrix of each row, by the number of offsets that are not beyond it."""
    experts = (offsets[1:] <= torch.arange(len(x))[:, None]).sum(1)
    return (x[:, :, None] * weight[experts]).sum(1)


def test_the_references_multiply_each_row_by_the_matrix_of_its_expert() -> None:
    x, weight, offsets = arguments(torch.float64)
    expected = row_by_row(x.requires_grad_(), weight.requires_grad_(), offsets)
    torch.testing.assert_close(grouped_linear.reference(x, weight, offsets), expected)
    grad = torch.randn_like(expected)
    wanted = torch.autograd.grad(expected, (x, weight), grad)
    found = grouped_linear_backward.reference(grad, x.detach(), weight.detach(), offsets)
    torch.testing.assert_close(found, wanted)


@pytest.mark.slow  # compiles
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_weights_of_n_rows_are_read_as_they_lie(dtype: torch.dtype) -> None:
    x, weight, offsets = arguments(dtype)
    expected = row_by_row(x.double(), weight.double(), offsets)
    found = grouped_linear(x, weight, offsets)
    torch.testing.assert_close(found.double(), expected, rtol=2e-2, atol=2e-2)
    lying = weight.transpose(1, 2).contiguous().transpose(1, 2)
    assert lying.stride() == (7 * 300, 1, 7)
    assert torch.equal(grouped_linear(x, lying, offsets), found)
    grads = grouped_linear_backward(found, x, weight, offsets)
    for one, other in zip(grads, grouped_linear_backward(found, x, lying, offsets), strict=True):
        assert torch.equal(one, other)


@pytest.mark.slow  # compiles
def test_gradients_are_those_of_finite_differences() -> None:
    x, weight = torch.randn(5, 3).double(), torch.randn(3, 3, 4).double()
    offsets = torch.tensor([0, 2, 2, 5], dtype=torch.int32)
    inputs = x.requires_grad_(), weight.requires_grad_(), offsets
    assert torch.autograd.gradcheck(grouped_linear, inputs)


@pytest.mark.slow  # compiles
def test_the_result_is_that_of_pytorchs_grouped_product() -> None:
    x, weight, offsets = arguments(torch.bfloat16, 32, 64)
    expected = functional.grouped_mm(x, weight, offs=offsets[1:])
    torch.testing.assert_close(grouped_linear(x, weight, offsets), expected, rtol=1e-2, atol=1e-2)


def layer_of_the_readme() -> Callable[..., Tensor]:
    """Run what the README shows as it stands there."""
    text = (GALLERY / "grouped_linear" / "README.md").read_text(encoding="utf-8")
    (code,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    names: dict[str, Any] = {}
    exec(code, names)
    layer: Callable[..., Tensor] = names["mixture_of_experts"]
    return layer


@pytest.mark.slow  # compiles three operators
@pytest.mark.parametrize("k", [1, 3])
def test_the_layer_of_the_readme_is_a_loop_over_experts(k: int) -> None:
    sizes = (20, 6), (6, 5), (5, 6, 8), (5, 4, 6)  # tokens, router, up, down
    leaves = [torch.randn(size, dtype=torch.float64, requires_grad=True) for size in sizes]
    x, router, up, down = leaves
    found = layer_of_the_readme()(x, router, up, down, k)
    values, chosen = (x @ router).topk(k)
    shares = values.softmax(1)
    expected = torch.zeros_like(x)
    for expert in range(5):
        gate, value = (x @ up[expert]).chunk(2, dim=1)
        share = (shares * (chosen == expert)).sum(1, keepdim=True)
        expected = expected + share * (functional.silu(gate) * value @ down[expert])
    torch.testing.assert_close(found, expected)
    grad = torch.randn_like(found)
    torch.testing.assert_close(
        torch.autograd.grad(found, leaves, grad), torch.autograd.grad(expected, leaves, grad)
    )


#: By what goes wrong: the file, what stands there, what is planted, and the row that finds it.
MISTAKES = {
    "an expert begins one row late": (
        *("grouped_linear.cpp", "x.at(begin, block.first)", "x.at(begin + 1, block.first)"),
        "bounds",
    ),
    "the weight's strides are exchanged": (
        *("grouped_linear.cpp", "weight.stride(1), weight.stride(2)}"),
        *("weight.stride(2), weight.stride(1)}", "reference"),
    ),
    "the last part of a sum takes the place of the others": (
        *("../products.h", "kBlockColumns, k > 0", "kBlockColumns, false", "reference"),
    ),
    "a block adds up what it has of the block before": (
        *("grouped_linear.cu", "    __syncthreads();  // what is there is used\n", ""),
        "cuda-on-cpu",
    ),
    "the tile that is not full belongs to no expert": (
        *("grouped_linear.cu", "a.T / kTile + a.E", "a.T / kTile + 1", "cuda-on-cpu"),
    ),
}


@pytest.mark.slow(cases=2)
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_planted_mistake_is_found(mistake: str, tmp_path: Path) -> None:
    file, right, wrong, row = MISTAKES[mistake]
    shutil.copytree(GALLERY, tmp_path / "gallery")
    folder = tmp_path / "gallery" / "grouped_linear"
    text = (folder / file).read_text(encoding="utf-8")
    assert right in text
    (folder / file).write_text(text.replace(right, wrong), encoding="utf-8")
    command = [
        *(sys.executable, "-m", "opsmith", "check", str(folder / "grouped_linear.py")),
        *("--check", row, "--examples", "8", "--seed", "0", "-j", "1"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"check '{row}' failed" in done.stdout
