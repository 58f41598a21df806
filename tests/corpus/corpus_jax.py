"""JAX's formulas of PyTorch's operators, as references: another project's words for the same thing.

Each takes the operator's tensors by their order, as NumPy's arrays, and its numbers by their names.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy


@functools.cache
def _formulas() -> tuple[Mapping[str, Callable[..., Any]], Mapping[str, Callable[..., Any]]]:
    """Return formulas by the names of operators: of each element by itself, and others."""
    import jax
    import jax.numpy as jnp
    from jax import nn
    from jax.scipy import special

    groups = {
        jnp: "copysign exp2 expm1 float_power fmax fmin heaviside hypot log1p log2 logaddexp "
        "logaddexp2 nextafter remainder sinc square tanh",
        special: "digamma erf erfc erfinv i0 logit xlogy",
        nn: "log_sigmoid mish relu relu6 selu sigmoid silu",
    }
    special_names = "entr erfcx i0e i1 i1e log_ndtr ndtr ndtri xlog1py zeta".split()
    each = {
        **{name: getattr(home, name) for home, names in groups.items() for name in names.split()},
        **{f"special_{name}": getattr(special, name) for name in special_names},
        "lgamma": special.gammaln,
        "igamma": special.gammainc,
        "igammac": special.gammaincc,
        "hardsigmoid": nn.hard_sigmoid,
        "hardswish": nn.hard_swish,
        "gelu": lambda x, approximate: nn.gelu(x, approximate=approximate == "tanh"),
        "leaky_relu": lambda x, negative_slope: nn.leaky_relu(x, negative_slope),
        "celu": lambda x, alpha: nn.celu(x, alpha),
        "mvlgamma": lambda x, p: special.multigammaln(x, p),
    }
    others = {
        "outer": jnp.outer,
        "inner": jnp.inner,
        "kron": jnp.kron,
        "softmax": lambda x, dim: nn.softmax(x, axis=dim),
        "log_softmax": lambda x, dim: nn.log_softmax(x, axis=dim),
        "logsumexp": lambda x, dim, keepdim: special.logsumexp(x, tuple(dim), keepdims=keepdim),
        "glu": lambda x, dim: nn.glu(x, axis=dim),
        "cumsum": lambda x, dim: jnp.cumsum(x, axis=dim) if x.ndim else x,
        "cumprod": lambda x, dim: jnp.cumprod(x, axis=dim) if x.ndim else x,
        "matrix_exp": jax.scipy.linalg.expm,
        "linalg_inv": jnp.linalg.inv,
        "linalg_det": jnp.linalg.det,
    }
    return each, others


def _stem(name: str) -> str:
    return name.removeprefix("aten::").partition(".")[0]


def has(name: str) -> bool:
    """Return whether JAX has a formula of an overload (``aten::logsumexp``)."""
    return any(_stem(name) in some for some in _formulas())


def called(name: str, arguments: Mapping[str, Any]) -> Any:
    """Return what JAX's formula of an overload gives, in the dtypes of the arguments."""
    import jax

    each, others = _formulas()
    arrays = [one for one in arguments.values() if isinstance(one, numpy.ndarray)]
    numbers = {key: one for key, one in arguments.items() if not isinstance(one, numpy.ndarray)}
    with jax.enable_x64(True):
        if _stem(name) in others:
            return numpy.asarray(others[_stem(name)](*map(jax.numpy.asarray, arrays), **numbers))
        # XLA compiles for each size, so there are few of them.
        arrays = numpy.broadcast_arrays(*arrays)
        shape, count = arrays[0].shape, arrays[0].size
        room = 4 ** math.ceil(math.log(max(count, 4), 4))
        padded = [numpy.pad(one.ravel(), (0, room - count), constant_values=1) for one in arrays]
        found = each[_stem(name)](*map(jax.numpy.asarray, padded), **numbers)
        return numpy.asarray(found)[:count].reshape(shape)
