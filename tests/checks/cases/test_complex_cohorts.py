"""Complex arguments have the special values of real ones, and right operators pass them."""

import cmath
import math

import pytest
import torch
from cohort_rows import declared, run
from jaxtyping import Complex, Float
from torch import Tensor

pytestmark = pytest.mark.slow


Z = Complex[Tensor, "N"]


def magnitude(z: Z) -> Float[Tensor, "N"]:
    return z.abs()


def unit(z: Z) -> Z:
    return torch.polar(torch.ones_like(z.real), z.angle())


def product(z: Z, w: Z) -> Z:
    return z * w


def by_squares(z):
    return (z.real.square() + z.imag.square()).sqrt()


def in_parts(z, w):
    return torch.complex(z.real * w.real - z.imag * w.imag, z.real * w.imag + z.imag * w.real)


def by_rules_of_c(z, w):
    """Multiply as C does, where a product with an infinite factor is infinite."""

    def one(a, b):
        found = a * b
        if cmath.isnan(found) and (cmath.isinf(a) or cmath.isinf(b)):
            found = complex(math.inf, math.inf)
        return found

    pairs = zip(z.tolist(), w.tolist(), strict=True)
    return torch.tensor([one(*pair) for pair in pairs], dtype=z.dtype)


def phases(z):
    length = torch.hypot(z.real, z.imag)
    inside = (length > 0) & length.isfinite()
    # A denormal number has few digits, and the quotient of two has fewer.
    exact = inside & (length > torch.finfo(length.dtype).smallest_normal)
    quotient = torch.complex(z.real / length, z.imag / length)
    return torch.where(exact, quotient, unit(z))


def in_disorder(z):
    return torch.where(by_squares(z).isinf(), 0, unit(z))


COMPLEX_FAULTS = [
    (magnitude, by_squares, "OPS-VALUE-RANGE"),
    (magnitude, lambda z: z.real.nan_to_num().hypot(z.imag), "OPS-VALUE-NAN-LOST"),
    (magnitude, lambda z: torch.where(z == 0, 1e-3, z).abs(), "OPS-VALUE-ZERO"),
    (magnitude, lambda z: z.abs().clamp(max=1e30), "OPS-VALUE-RANGE"),
    (unit, in_disorder, "OPS-VALUE-RANGE"),
    (product, lambda z, w: torch.where(z.isnan(), 0, z) * w, "OPS-VALUE-NAN-LOST"),
]


@pytest.mark.slow(cases=6)
@pytest.mark.parametrize(("reference", "wrong", "code"), COMPLEX_FAULTS)
def test_complex_arguments_have_values_that_show_what_real_ones_show(reference, wrong, code):
    for seed in (0, 1):
        row = run(declared(reference, wrong), seed)
        assert row.status == "failed" and row.code == code, row.explain()


@pytest.mark.slow(cases=6)
@pytest.mark.parametrize(
    ("reference", "right"),
    [
        (magnitude, lambda z: torch.hypot(z.real, z.imag)),
        (unit, phases),
        (product, in_parts),
        (product, by_rules_of_c),
        (product, torch.mul),
    ],
)
def test_a_right_complex_operator_passes_whatever_formula_it_has(reference, right):
    for seed in range(3):
        row = run(declared(reference, right), seed)
        assert row.status == "passed", row.explain()
        assert "NaN 10, infinity 10" in row.notes[0] and "huge 5" in row.notes[0]
