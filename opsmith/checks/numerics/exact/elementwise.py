"""PyTorch's elementwise operators on numbers that are never rounded, and the registry of all.

A handler receives the mode and the operator's arguments, and returns an `Array`, a tensor of
another kind, or a tuple of them. Operators without one are decomposed.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor

from opsmith.checks.numerics.exact import arrays
from opsmith.checks.numerics.exact.arrays import Array

#: Operators that only move elements: residues move in the same way.
MOVES = frozenset(
    {
        "_to_copy_same", "_unsafe_view", "as_strided_scatter", "cat", "clone", "contiguous",
        "copy", "diagonal_scatter", "embedding", "expand_copy", "flip", "gather", "im2col_moves",
        "index", "index_select", "lift_fresh", "lift_fresh_copy", "narrow_copy", "permute_copy",
        "pixel_shuffle", "pixel_unshuffle", "repeat", "repeat_interleave", "reshape_copy", "roll",
        "rot90", "scatter_move", "select_scatter", "slice_scatter", "stack", "take", "tril",
        "triu", "unfold_copy", "view_copy", "block_diag", "channel_shuffle", "diag_embed",
    }
)  # fmt: skip

Handler = TypeVar("Handler", bound=Callable[..., Any])
HANDLERS: dict[str, Callable[..., Any]] = {}


def handler(*names: str) -> Callable[[Handler], Handler]:
    """Return a decorator that registers a function for PyTorch's operators of these names."""

    def register(function: Handler) -> Handler:
        HANDLERS.update(dict.fromkeys(names, function))
        return function

    return register


def apply(name: str, *given: Array | float) -> Array:
    """Apply a function of the library to arrays and constants."""
    many = [value if isinstance(value, Array) else constant(value) for value in given]
    return arrays.one(name, many[0]) if len(many) == 1 else arrays.two(name, many[0], many[1])


def constant(value: float) -> Array:
    """Return the number that a constant of the reference stands for."""
    return arrays.constants(torch.tensor(float(value), dtype=torch.float64))


def where(condition: Tensor, first: Array, second: Array) -> Array:
    """Return the numbers of one array where a condition holds, and of another elsewhere."""
    first, second = arrays.broadcast(first, second)
    return first.map_with(second, lambda one, other: torch.where(condition, one, other))


# --- elementwise ---------------------------------------------------------------------------------

_OWN = {
    "abs": "fabs", "acos": "acos", "acosh": "acosh", "asin": "asin", "asinh": "asinh",
    "atan": "atan", "atanh": "atanh", "ceil": "ceil", "cos": "cos", "cosh": "cosh", "erf": "erf",
    "erfc": "erfc", "exp": "exp", "exp2": "exp2", "expm1": "expm1", "floor": "floor",
    "lgamma": "lgamma", "log": "log", "log10": "log10", "log1p": "log1p", "log2": "log2",
    "neg": "neg", "round": "rint", "rsqrt": "rsqrt", "sigmoid": "sigmoid", "sin": "sin",
    "sinh": "sinh", "sqrt": "sqrt", "tan": "tan", "tanh": "tanh", "trunc": "trunc",
    "atan2": "atan2", "copysign": "copysign", "fmax": "fmax", "fmin": "fmin", "fmod": "fmod",
    "hypot": "hypot", "maximum": "maximum", "minimum": "minimum", "mul": "mul", "pow": "pow",
}  # fmt: skip


def _applied(name: str) -> Callable[..., Any]:
    return lambda mode, *given: apply(name, *map(mode.array, given))


for _aten, _own in _OWN.items():
    HANDLERS[_aten] = _applied(_own)


def _with_alpha(name: str) -> Callable[..., Any]:
    def run(mode: Any, x: Any, y: Any, *, alpha: Any = 1) -> Array:
        other = mode.array(y)
        return apply(name, mode.array(x), other if alpha == 1 else apply("mul", other, alpha))

    return run


HANDLERS["add"] = _with_alpha("add")
HANDLERS["sub"] = _with_alpha("sub")


@handler("div", "true_divide")
def _div(mode: Any, x: Any, y: Any, *, rounding_mode: str | None = None) -> Array:
    quotient = apply("div", mode.array(x), mode.array(y))
    return quotient if rounding_mode is None else apply(rounding_mode, quotient)


@handler("remainder")
def _remainder(mode: Any, x: Any, y: Any) -> Array:
    first, second = mode.array(x), mode.array(y)
    whole = apply("floor", apply("div", first, second))
    return apply("sub", first, apply("mul", second, whole))


@handler("reciprocal")
def _reciprocal(mode: Any, x: Any) -> Array:
    return apply("div", 1, mode.array(x))


@handler("sign", "sgn")
def _sign(mode: Any, x: Any) -> Array:
    array = mode.array(x)
    return arrays.constants(arrays.order(array, constant(0)).double())


@handler("elu")
def _elu(mode: Any, x: Any, alpha: float = 1, scale: float = 1, input_scale: float = 1) -> Array:
    array = mode.array(x)
    low = apply("mul", apply("expm1", apply("mul", array, input_scale)), alpha)
    return apply("mul", where(array.values > 0, array, low), scale)


@handler("where")
def _where_of(mode: Any, condition: Tensor, x: Any, y: Any) -> Array:
    return where(condition.bool(), mode.array(x), mode.array(y))


# --- decisions -----------------------------------------------------------------------------------

_COMPARISONS: dict[str, Callable[[Tensor], Tensor]] = {
    "eq": lambda found: found == 0,
    "ne": lambda found: found != 0,
    "lt": lambda found: found == -1,
    "gt": lambda found: found == 1,
    "le": lambda found: (found == -1) | (found == 0),
    "ge": lambda found: (found == 1) | (found == 0),
}


def _comparison(holds: Callable[[Tensor], Tensor]) -> Callable[..., Any]:
    return lambda mode, x, y: holds(arrays.order(mode.array(x), mode.array(y)))


for _aten, _holds in _COMPARISONS.items():
    HANDLERS[_aten] = _comparison(_holds)


def _by_value(name: str) -> Callable[..., Any]:
    packet = getattr(torch.ops.aten, name)
    return lambda mode, *given, **named: packet(*given, **named)


for _aten in ("isnan", "isinf", "isfinite", "isposinf", "isneginf", "signbit", "logical_not"):
    HANDLERS[_aten] = _by_value(_aten)
for _aten in ("logical_and", "logical_or", "logical_xor", "any", "all", "nonzero", "bucketize"):
    HANDLERS[_aten] = _by_value(_aten)
for _aten in ("searchsorted", "is_same_size", "argsort", "sym_size", "sym_numel", "count_nonzero"):
    HANDLERS[_aten] = _by_value(_aten)


@handler("_to_copy", "convert_element_type", "to")
def _to_copy(mode: Any, x: Tensor, target: Any = None, **named: Any) -> Any:
    dtype = named.get("dtype") or (target if isinstance(target, torch.dtype) else x.dtype)
    array = mode.array(x)
    if dtype == torch.float64:
        return array
    whole = array.values if dtype == torch.bool else arrays.one("trunc", array).values
    return whole.to(dtype)


def _filled(name: str) -> Callable[..., Any]:
    packet = getattr(torch.ops.aten, name)

    def fill(mode: Any, x: Any, *given: Any, **named: Any) -> Any:
        named = {key: value for key, value in named.items() if value is not None}
        made = packet(x.detach(), *given, **named)
        return arrays.constants(made.contiguous()) if made.dtype == torch.float64 else made

    return fill


for _aten in ("zeros_like", "ones_like", "full_like", "empty_like"):
    HANDLERS[_aten] = _filled(_aten)
for _aten in ("new_zeros", "new_ones", "new_full", "new_empty", "new_empty_strided"):
    HANDLERS[_aten] = _filled(_aten)
