"""Fourier transforms as PyTorch's operators define them, in terms of JAX's."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from jax import numpy as jnp

#: PyTorch's numbers for no scale, and for scaling by the root of the number of elements.
_NONE, _ROOT = 0, 1


def _scaled(found: Any, normalization: int, sizes: Sequence[int]) -> Any:
    if normalization == _NONE:
        return found
    count = math.prod(sizes)
    return found / (math.sqrt(count) if normalization == _ROOT else count)


def _fft_r2c(x: Any, dim: Sequence[int], normalization: int, onesided: bool) -> Any:
    transform = jnp.fft.rfftn if onesided else jnp.fft.fftn
    return _scaled(transform(x, axes=tuple(dim)), normalization, [x.shape[axis] for axis in dim])


def _fft_c2c(x: Any, dim: Sequence[int], normalization: int, forward: bool) -> Any:
    axes = tuple(dim)
    found = jnp.fft.fftn(x, axes=axes) if forward else jnp.fft.ifftn(x, axes=axes, norm="forward")
    return _scaled(found, normalization, [x.shape[axis] for axis in dim])


def _fft_c2r(x: Any, dim: Sequence[int], normalization: int, last_dim_size: int) -> Any:
    sizes = [*(x.shape[axis] for axis in dim[:-1]), last_dim_size]
    found = jnp.fft.irfftn(x, s=sizes, axes=tuple(dim), norm="forward")
    return _scaled(found, normalization, sizes)
