"""PyTorch's operators in JAX, which translated derivatives are made of."""

from __future__ import annotations

import numpy as np
import pytest
import torch

pytest.importorskip("jax")
import jax.numpy as jnp

from opsmith.targets.jax.package import aten


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("name", ["asinh", "atanh", "expm1", "sigmoid", "sinh"])
def test_half_precision_is_computed_in_single_precision(name: str, dtype: torch.dtype) -> None:
    """As PyTorch does: step by step in half precision, the sigmoid of -12 is 0."""
    x = torch.cat([torch.linspace(-12, 12, 241), torch.logspace(-4, 0, 100)]).to(dtype)
    right = getattr(torch.ops.aten, name)(x)
    given = getattr(aten, name)(jnp.asarray(x.float().numpy(), dtype=str(dtype)[6:]))
    found = torch.from_numpy(np.array(given.astype(jnp.float32)))
    near = found - right.float()
    unit = torch.finfo(dtype).eps * right.float().abs().clamp_min(torch.finfo(dtype).tiny)
    finite = right.isfinite()
    assert given.dtype == str(dtype)[6:]
    assert bool((near.abs() <= 1.01 * unit)[finite].all())
    assert torch.equal(found[~finite].isnan(), right[~finite].isnan())
