"""The allowed error of a result, see `oracle`."""

from __future__ import annotations

import torch
from torch import Tensor

from opsmith.checks.numerics.oracle import Expected
from opsmith.checks.numerics.sensitivity import magnitude


def tolerance(
    truth: Expected, position: int, dtype: torch.dtype, *, wide_sums: bool = False
) -> Tensor:
    """Return the allowed error of each element of a floating-point result.

    Args:
        truth: the right results.
        position: the number of the result.
        dtype: the result's dtype.
        wide_sums: whether sums have single precision, and only the result that of `dtype`.
    """
    value, spread, terms = truth.values[position], truth.spread[position], truth.terms[position]
    assert spread is not None and terms is not None
    info = torch.finfo(dtype)
    # In double precision, the right value is rounded as often as the result.
    unit = info.eps / (1 if info.eps == torch.finfo(torch.float64).eps else 2)
    if not truth.exact:
        unit = max(unit, torch.finfo(value.dtype).eps / 2)
    of_sums = torch.finfo(torch.float32).eps / 2 if wide_sums else unit
    size = torch.nan_to_num(magnitude(value), nan=0.0, posinf=0.0)
    allowed = 4 * unit * size + 4 * of_sums * torch.sqrt(terms) * (size + spread)
    smallest = info.smallest_normal * 4 * info.eps
    if smallest < torch.finfo(torch.float64).smallest_normal:
        # Adding a denormal number takes ten times as long as comparing with it.
        return allowed.clamp_min(smallest)
    return allowed + smallest
