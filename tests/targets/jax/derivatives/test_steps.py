"""What PyTorch's operators are in a derivative for JAX: each has its value and its gradient."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Callable, Iterator
from typing import Annotated, Any

import pytest
import torch
from derived import same_by_reference
from jaxtyping import Float, Float32, Float64
from torch import Tensor
from torch.nn import functional

import opsmith
from opsmith.targets.jax.derivatives import derivative

jax = pytest.importorskip("jax")
jnp = jax.numpy


@opsmith.op("jax_test::framed", autograd="reference")
def framed(x: Float[Tensor, "N M"], by: int = 2) -> Float[Tensor, "N+3 M+{by}-2"]:
    return functional.pad(x, (by, -2, 0, 3), value=0.5) * x.sum()


@framed.register_cases(only=True)
def framed_cases(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    for by, rows in itertools.product((2, 0, -1), (4, 1, 0)):
        yield {"x": torch.ones(rows, 7, dtype=dtype), "by": by}


@pytest.mark.slow
def test_padding_fixes_no_size() -> None:
    found = derivative(framed)
    assert not isinstance(found, str) and not found.lacking
    texts = [text for path in found.paths for text, _ in path.conditions]
    assert not [text for text in texts if re.fullmatch(r"x\.shape\[.\] == [^01]", text)], texts


@pytest.mark.slow(cases=2)
@pytest.mark.parametrize("rows", [0, 1, 6])
@pytest.mark.parametrize("by", [-1, 0, 3])
def test_padding_has_the_gradient_of_the_reference(rows: int, by: int) -> None:
    same_by_reference(framed, torch.randn(rows, 5), by=by)


@pytest.mark.parametrize(("size", "hop"), [(1, 1), (3, 2), (6, 5)])
def test_windows_of_any_size_have_the_gradient_of_the_reference(size: int, hop: int) -> None:
    @opsmith.op("jax_test::windows", autograd="reference")
    def windows(
        x: Float32[Tensor, "N M"],
        size: Annotated[int, opsmith.Between(1, "N")],
        hop: Annotated[int, opsmith.Between(1, 5)],
    ) -> Float32[Tensor, "(N-{size})//{hop}+1 M {size}"]:
        return x.unfold(0, size, hop) * 2

    same_by_reference(windows, torch.randn(9, 2), size=size, hop=hop)


def _kernel(x: Tensor) -> Tensor:
    return (torch.arange(54, dtype=x.dtype) / 27 - 1).reshape(6, 1, 3, 3)


#: What references are often made of, beside arithmetic.
STEPS: dict[str, Callable[[Tensor], Tensor]] = {
    "softmax": lambda x: x.softmax(-1),
    "attention": lambda x: (x @ x.transpose(-1, -2) * x.shape[-1] ** -0.5).softmax(-1) @ x,
    "square root": lambda x: x / math.sqrt(x.shape[-1]),
    "einsum of three": lambda x: torch.einsum("abcd,cd,ab->bcd", x, x.sum((0, 1)), x[..., 0, 0]),
    "log_softmax": lambda x: x.log_softmax(1),
    "logsumexp": lambda x: x.logsumexp((1, 2)),
    "length": lambda x: x.sum((1, 2, 3)) * torch.arange(len(x)),
    "repeats": lambda x: torch.repeat_interleave(
        x, torch.full((len(x),), 2), 0, output_size=2 * len(x)
    ),
    "unfold": lambda x: x.unfold(-2, 3, 2),
    "bucketize": lambda x: x * torch.bucketize(x, torch.arange(-2.0, 2.0), right=True),
    "layer_norm": lambda x: functional.layer_norm(x, x.shape[-1:]),
    "group_norm": lambda x: functional.group_norm(x, 2),
    "rfft": lambda x: torch.fft.rfft(x).abs(),
    "irfft2": lambda x: torch.fft.irfft2(torch.fft.rfft2(x) * (1 + x[..., :1]), s=x.shape[-2:]),
    "norm": lambda x: x.norm(dim=1),
    "std": lambda x: x.std((1, 2)),
    "var_mean": lambda x: sum(torch.var_mean(x, 2, correction=0, keepdim=True)),
    "max": lambda x: x.max(2)[0] * x.max(),
    "min": lambda x: x.min(3, keepdim=True)[0],
    "sort": lambda x: x.sort(1, descending=True)[0] * torch.arange(x.shape[1]).reshape(-1, 1, 1),
    "topk": lambda x: x.topk(2, -1, largest=False)[0],
    "cumprod": lambda x: x.cumprod(1),
    "diagonal": lambda x: x.diagonal(1, -2, -1),
    "max_pool": lambda x: functional.max_pool2d(x, 2),
    "circular": lambda x: functional.pad(x, (1, 2, 0, 1), mode="circular"),
    "detach": lambda x: x * x.detach() + (x - x.data.amax(-1, keepdim=True)).exp(),
    "copy": lambda x: torch.empty_like(x).copy_(x.sum(0)) * x,
    "convolution": lambda x: functional.conv2d(
        x.mean(1, keepdim=True), _kernel(x), None, 2, 1, (1, 2)
    ),
    "transposed": lambda x: functional.conv_transpose2d(
        torch.cat([x[:, :1], x[:, 1:2] * 2], 1).repeat(1, 3, 1, 1),
        _kernel(x).repeat(1, 2, 1, 1),
        x.new_ones(4),
        (2, 1),
        (1, 2),
        output_padding=(1, 0),
        groups=2,
        dilation=(1, 2),
    ),
    "grid_sample": lambda x: functional.grid_sample(
        x, x[:, :2, :2, :2].sigmoid().permute(0, 2, 3, 1), align_corners=False
    ),
}


@pytest.mark.slow(cases=2)
@pytest.mark.parametrize("name", STEPS)
def test_a_step_of_a_reference_has_its_value_and_gradient(name: str) -> None:
    step = STEPS[name]

    @opsmith.op(f"jax_test::step_{name.replace(' ', '_')}", autograd="reference")
    def stepped(x: Float64[Tensor, "N C H W"]) -> Float64[Tensor, ""]:
        # In double precision, as terms that cancel may leave little more than rounding.
        found = step(x)
        # So that no two elements of its result count alike.
        weights = torch.arange(found.numel(), dtype=torch.float64).cos()
        return (found * weights.reshape(found.shape)).sum()

    @stepped.register_cases(only=True)
    def cases(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
        yield {"x": torch.randn(2, 4, 6, 7, dtype=torch.float64)}

    same_by_reference(stepped, torch.randn(3, 6, 5, 8, dtype=torch.float64))


def test_softmax_of_nothing() -> None:
    @opsmith.op("jax_test::weighed_by_softmax", autograd="reference")
    def weighed(x: Float32[Tensor, "N M"]) -> Float32[Tensor, "N"]:
        return (x.softmax(-1) * x).sum(-1)

    same_by_reference(weighed, torch.zeros(3, 0))
    same_by_reference(weighed, torch.zeros(0, 3))
