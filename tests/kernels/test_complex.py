"""Kernels compute with complex numbers by the names that C++ has for them."""

from __future__ import annotations

import pytest
import torch
from jaxtyping import Complex, Num
from torch import Tensor


def complex_math(
    z: Complex[Tensor, "N"],
) -> tuple[
    Complex[Tensor, "N"], Complex[Tensor, "N"], Complex[Tensor, "N"], Complex[Tensor, "N"]
]: ...


def any_number(
    x: Num[Tensor, "N"],
) -> tuple[Num[Tensor, "N"], Num[Tensor, "N"], Num[Tensor, "N"]]: ...


@pytest.mark.slow
def test_complex_numbers_have_the_functions_that_std_complex_has(build):
    operator = build(complex_math)
    for dtype in (torch.complex64, torch.complex128):
        z = torch.tensor([1 + 2j, -3 + 0.5j, 0.25 - 1j], dtype=dtype)
        polar, back, parts, curve = operator(z)
        torch.testing.assert_close(polar, torch.complex(z.abs(), z.angle()))
        torch.testing.assert_close(back, torch.ones_like(z))
        torch.testing.assert_close(parts, torch.complex(z.imag, z.real))
        torch.testing.assert_close(curve, z.exp() + z.sqrt() * z.sin() - z**2 + z.log())


@pytest.mark.slow
def test_every_element_type_has_a_conjugate_parts_and_an_absolute_value(build):
    operator = build(any_number)
    for dtype in (
        *(torch.float16, torch.bfloat16, torch.float32, torch.float64),
        *(torch.int8, torch.int32, torch.int64),
    ):
        x = torch.tensor([-3, 0, 2], dtype=dtype)
        turned, size, parts = operator(x)
        assert turned.tolist() == parts.tolist() == [-3, 0, 2]
        assert size.tolist() == [3, 0, 2]
    assert operator(torch.tensor([255], dtype=torch.uint8))[1].item() == 255
    for dtype in (torch.complex64, torch.complex128):
        turned, size, parts = operator(torch.tensor([3 - 4j], dtype=dtype))
        assert (turned.item(), size.item(), parts.item()) == (3 + 4j, 5, -1)
