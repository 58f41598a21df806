"""Multiples of a half, zeros in a range, and zeros of both signs show what other values hide."""

from typing import Annotated

import pytest
import torch
from jaxtyping import Bool, Float32, Int8, Int64
from test_cohorts import declared, run
from torch import Tensor

from opsmith import Between

N = Float32[Tensor, "N"]


def quantized(x: N, scale: Float32[Tensor, ""]) -> Int8[Tensor, "N"]:
    return (x / scale).nan_to_num(0.0).clamp(-100, 100).round().to(torch.int8)


def inside(x: N, most: float) -> Bool[Tensor, "N"]:
    return x < torch.tensor(most, dtype=torch.float32).to(x.dtype)


def sinc(x: Annotated[N, Between(-10.0, 10.0)]) -> N:
    return torch.where(x == 0, 1.0, x.sin() / torch.where(x == 0, 1.0, x))


def first_largest(x: N) -> Int64[Tensor, ""]:
    return x.argmax() if len(x) else torch.zeros((), dtype=torch.int64)


def by_bits(x):
    """Order floats as a radix sort does that takes -0 for less than 0."""
    bits = x.view(torch.int32)
    return first_largest(torch.where(bits < 0, ~bits, bits | (-(2**31))).to(torch.int64) % 2**32)


def away(x, scale):
    x = (x / scale).nan_to_num(0.0).clamp(-100, 100)
    return (x.sign() * (x.abs() + 0.5).floor()).to(torch.int8)


def reference_of(function):
    return lambda *arguments: function(*arguments)


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    ("reference", "kernel", "code"),
    [
        (quantized, away, "OPS-VALUE-HALVES"),
        (quantized, reference_of(quantized), ""),
        (inside, lambda x, most: x <= most, "OPS-VALUE-HALVES"),
        (inside, reference_of(inside), ""),
        (sinc, lambda x: x.sin() / x, "OPS-VALUE-ZERO"),
        (sinc, reference_of(sinc), ""),
        (first_largest, by_bits, "OPS-VALUE-ZERO"),
    ],
)
def test_a_fault_that_few_values_show_is_found(reference, kernel, code, seed):
    row = run(declared(reference, kernel), seed)
    assert (row.status, row.code) == ("failed" if code else "passed", code), row.explain()
