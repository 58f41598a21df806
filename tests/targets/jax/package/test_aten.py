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


@pytest.mark.parametrize("normalization", [0, 1, 2])
@pytest.mark.parametrize("dim", [[1], [2, 0]])
def test_fourier_transforms_are_those_of_pytorch(normalization: int, dim: list[int]) -> None:
    generator = torch.Generator().manual_seed(normalization)
    real = torch.randn(3, 6, 5, generator=generator)
    spectrum = torch.complex(real, torch.randn(3, 6, 5, generator=generator))
    even = 2 * (real.shape[dim[-1]] - 1)
    for name, x, last in (
        ("_fft_r2c", real, True),
        ("_fft_r2c", real, False),
        ("_fft_c2c", spectrum, True),
        ("_fft_c2c", spectrum, False),
        ("_fft_c2r", spectrum, even),
        ("_fft_c2r", spectrum, even + 1),
    ):
        right = getattr(torch.ops.aten, name)(x, dim, normalization, last)
        given = getattr(aten, name)(jnp.asarray(x.numpy()), dim, normalization, last)
        np.testing.assert_allclose(np.asarray(given), right.numpy(), rtol=1e-5, atol=1e-5)
