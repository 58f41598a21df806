"""Implement PyTorch's operators that occur in translated derivatives in JAX.

Each function has the arguments of PyTorch's operator of the same name, with dtypes by their names.
What PyTorch's core decompositions replace has no function.
"""
# ruff: noqa: D103 (what each does is PyTorch's to say)

from __future__ import annotations

import builtins
import math
import operator as _operator
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp

_LAST = 2**63 - 1


def _unary(function: Callable[[Any], Any]) -> Callable[..., Any]:
    return lambda x, **_: function(x)


def _in_single(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compute in single precision at least, as PyTorch does.

    XLA decomposes the function into steps. In half precision each step would be rounded, or
    overflow: the sigmoid of -12 would be 0.
    """

    def computed(x: Any, **named: Any) -> Any:
        if _is_half(x):
            return function(x.astype(jnp.float32), **named).astype(x.dtype)
        return function(x, **named)

    return computed


def _is_half(x: Any) -> bool:
    return x.dtype in (jnp.float16, jnp.bfloat16)


abs = _unary(jnp.abs)
acos = _in_single(jnp.arccos)
acosh = _in_single(jnp.arccosh)
alias = clone = contiguous = lift_fresh_copy = _unary(lambda x: x)
asin = _in_single(jnp.arcsin)
asinh = _in_single(jnp.arcsinh)
atan = _unary(jnp.arctan)
atanh = _in_single(jnp.arctanh)
bitwise_not = _unary(jnp.bitwise_not)
ceil = _unary(jnp.ceil)
_conj = conj_physical = resolve_conj = _unary(jnp.conj)
cos = _unary(jnp.cos)
cosh = _unary(jnp.cosh)
detach = _unary(jax.lax.stop_gradient)
digamma = _in_single(jax.scipy.special.digamma)
erf = _unary(jax.scipy.special.erf)
erfc = _unary(jax.scipy.special.erfc)
erfinv = _in_single(jax.scipy.special.erfinv)
exp = _unary(jnp.exp)
exp2 = _unary(jnp.exp2)
expm1 = _in_single(jnp.expm1)
floor = _unary(jnp.floor)
isinf = _unary(jnp.isinf)
isnan = _unary(jnp.isnan)
lgamma = _in_single(jax.scipy.special.gammaln)
log = _unary(jnp.log)
log10 = _unary(jnp.log10)
log1p = _unary(jnp.log1p)
log2 = _unary(jnp.log2)
logical_not = _unary(jnp.logical_not)
neg = _unary(jnp.negative)
reciprocal = _unary(jnp.reciprocal)
relu = _unary(jax.nn.relu)
rsqrt = _unary(jax.lax.rsqrt)
sigmoid = _in_single(jax.nn.sigmoid)
sign = _unary(jnp.sign)
signbit = _unary(jnp.signbit)
sin = _unary(jnp.sin)
sinh = _in_single(jnp.sinh)
sqrt = _unary(jnp.sqrt)
tan = _unary(jnp.tan)
tanh = _unary(jnp.tanh)
trunc = _unary(jnp.trunc)

view_as_complex = _unary(lambda x: jax.lax.complex(x[..., 0], x[..., 1]))
view_as_real = _unary(lambda x: jnp.stack([x.real, x.imag], -1))

atan2 = jnp.arctan2
complex = jax.lax.complex
bitwise_and = jnp.bitwise_and
bitwise_or = jnp.bitwise_or
bitwise_xor = jnp.bitwise_xor
copysign = jnp.copysign
eq = _operator.eq
fmax = jnp.fmax
fmin = jnp.fmin
ge = _operator.ge
gt = _operator.gt
hypot = jnp.hypot
le = _operator.le
lt = _operator.lt
ne = _operator.ne
logical_and = jnp.logical_and
logical_or = jnp.logical_or
logical_xor = jnp.logical_xor
maximum = jnp.maximum
minimum = jnp.minimum
mul = _operator.mul
remainder = jnp.remainder
fmod = jnp.fmod
pow = jnp.power
mm = bmm = matmul = jnp.matmul
where = jnp.where
permute = jnp.transpose


def round(x: Any, *, decimals: int = 0) -> Any:
    return jnp.round(x, decimals)


def add(x: Any, y: Any, *, alpha: Any = 1) -> Any:
    return x + (y if alpha == 1 else alpha * y)


def sub(x: Any, y: Any, *, alpha: Any = 1) -> Any:
    return x - (y if alpha == 1 else alpha * y)


def div(x: Any, y: Any, *, rounding_mode: str | None = None) -> Any:
    if rounding_mode == "floor":
        return jnp.floor_divide(x, y)
    return x / y if rounding_mode is None else jnp.trunc(x / y).astype(jnp.result_type(x, y))


def clamp(x: Any, min: Any = None, max: Any = None) -> Any:
    return jnp.clip(x, min, max)


@_in_single
def gelu(x: Any, *, approximate: str = "none") -> Any:
    return jax.nn.gelu(x, approximate=approximate == "tanh")


# --- reductions ----------------------------------------------------------------------------------


def _axes(dim: Any) -> Any:
    if dim is None or (isinstance(dim, list | tuple) and not dim):
        return None
    return tuple(dim) if isinstance(dim, list | tuple) else dim


def _reduction(function: Callable[..., Any]) -> Callable[..., Any]:
    def reduce(x: Any, dim: Any = None, keepdim: bool = False, *, dtype: str | None = None) -> Any:
        value = x if dtype is None else x.astype(dtype)
        return function(value, axis=_axes(dim), keepdims=keepdim)

    return reduce


def _of_none(function: Callable[..., Any]) -> Callable[..., Any]:
    # A maximum of no elements is an error in JAX, and PyTorch asks for it even if it is not used.
    return lambda x, **how: function(x, **how) if x.size else function(x, initial=0, **how)


sum = _reduction(jnp.sum)
mean = _reduction(jnp.mean)
prod = _reduction(jnp.prod)
amax = _reduction(_of_none(jnp.max))
amin = _reduction(_of_none(jnp.min))
any = _reduction(jnp.any)
all = _reduction(jnp.all)
argmax = _reduction(jnp.argmax)
argmin = _reduction(jnp.argmin)


def _normalised(function: Callable[..., Any]) -> Callable[..., Any]:
    """Compute over one dimension, in single precision at least, as PyTorch does.

    The gradient does not flow through the subtracted maximum, where it would only add rounding.
    """

    def normalised(x: Any, dim: int, half_to_float: bool = False) -> Any:
        wide = x.astype(jnp.float32) if _is_half(x) else x
        found = function(wide, axis=dim) if x.size else wide
        return found if half_to_float else found.astype(x.dtype)

    return normalised


_softmax = _normalised(jax.nn.softmax)
_log_softmax = _normalised(jax.nn.log_softmax)


def logsumexp(x: Any, dim: Sequence[int], keepdim: bool = False) -> Any:
    return jax.nn.logsumexp(x, axis=tuple(dim), keepdims=keepdim)


def repeat_interleave(repeats: Any, *, output_size: int) -> Any:
    places = jnp.arange(len(repeats), dtype=repeats.dtype)
    return jnp.repeat(places, repeats, total_repeat_length=output_size)


def bucketize(x: Any, boundaries: Any, *, out_int32: bool = False, right: bool = False) -> Any:
    found = jnp.searchsorted(boundaries, x, side="right" if right else "left")
    return found.astype(jnp.int32 if out_int32 else jnp.int64)


def unfold(x: Any, dim: int, size: int, step: int) -> Any:
    dim %= builtins.max(x.ndim, 1)
    first = jnp.arange(0, x.shape[dim] - size + 1, step)
    windows = jnp.take(x, first[:, None] + jnp.arange(size), axis=dim)
    return jnp.moveaxis(windows, dim + 1, -1)


def cumsum(x: Any, dim: int, *, dtype: str | None = None) -> Any:
    return jnp.cumsum(x, axis=dim, dtype=dtype)


def cumprod(x: Any, dim: int, *, dtype: str | None = None) -> Any:
    return jnp.cumprod(x, axis=dim, dtype=dtype)


def var(x: Any, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    least = 1 if correction is None else correction
    return jnp.var(x, axis=_axes(dim), ddof=least, keepdims=keepdim)


def var_mean(x: Any, dim: Any = None, *, correction: Any = None, keepdim: bool = False) -> Any:
    return var(x, dim, correction=correction, keepdim=keepdim), mean(x, dim, keepdim)


def _extreme(function: Callable[..., Any], place: Callable[..., Any]) -> Callable[..., Any]:
    def extreme(x: Any, dim: Any = None, keepdim: bool = False) -> Any:
        if dim is None:
            return function(x)
        at = place(x, axis=dim, keepdims=True)
        found = jnp.take_along_axis(x, at, axis=dim), at
        return found if keepdim else tuple(jnp.squeeze(one, dim) for one in found)

    return extreme


max = _extreme(jnp.max, jnp.argmax)
min = _extreme(jnp.min, jnp.argmin)


# --- orders --------------------------------------------------------------------------------------


def sort(x: Any, dim: int = -1, descending: bool = False, *, stable: bool = False) -> Any:
    del stable  # JAX always sorts stably.
    at = jnp.argsort(x, axis=dim, descending=descending)
    return jnp.take_along_axis(x, at, axis=dim), at


def topk(x: Any, k: int, dim: int = -1, largest: bool = True, sorted: bool = True) -> Any:
    del sorted  # The result is always sorted.
    return tuple(slice(one, dim, 0, k) for one in sort(x, dim, largest))


# --- shapes --------------------------------------------------------------------------------------


def view(x: Any, size: Sequence[int]) -> Any:
    return x.reshape(tuple(size))


reshape = _unsafe_view = view


def expand(x: Any, size: Sequence[int], *, implicit: bool = False) -> Any:
    del implicit
    new = len(size) - x.ndim
    kept = [x.shape[i - new] if s == -1 else s for i, s in enumerate(size)]
    return jnp.broadcast_to(x, tuple(kept))


def unsqueeze(x: Any, dim: int) -> Any:
    return jnp.expand_dims(x, dim)


def squeeze(x: Any, dims: Sequence[int]) -> Any:
    return jnp.squeeze(x, tuple(d for d in dims if x.shape[d] == 1))


def cat(tensors: Sequence[Any], dim: int = 0) -> Any:
    return jnp.concatenate(tensors, axis=dim)


def split_with_sizes(x: Any, sizes: Sequence[int], dim: int = 0) -> list[Any]:
    ends, at = [], 0
    for size in sizes[:-1]:
        at += size
        ends.append(at)
    return jnp.split(x, ends, axis=dim)


def repeat(x: Any, repeats: Sequence[int]) -> Any:
    return jnp.tile(x, tuple(repeats))


def flip(x: Any, dims: Sequence[int]) -> Any:
    return jnp.flip(x, tuple(dims))


def diagonal(x: Any, offset: int = 0, dim1: int = 0, dim2: int = 1) -> Any:
    return jnp.diagonal(x, offset, dim1, dim2)


def copy(x: Any, source: Any, non_blocking: bool = False) -> Any:
    del non_blocking
    return jnp.broadcast_to(source.astype(x.dtype), x.shape)


# --- parts ---------------------------------------------------------------------------------------


def _at(x: Any, dim: int, part: Any) -> tuple[Any, ...]:
    index: list[Any] = [builtins.slice(None)] * x.ndim
    index[dim] = part
    return tuple(index)


def slice(x: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Any:
    stop = None if end is None or end >= _LAST else end
    return x[_at(x, dim, builtins.slice(start, stop, step))]


def select(x: Any, dim: int, index: int) -> Any:
    return x[_at(x, dim, index)]


def slice_scatter(
    x: Any, source: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1
) -> Any:
    stop = None if end is None or end >= _LAST else end
    return x.at[_at(x, dim, builtins.slice(start, stop, step))].set(source)


def _indices(indices: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(builtins.slice(None) if index is None else index for index in indices)


def index(x: Any, indices: Sequence[Any]) -> Any:
    return x[_indices(indices)]


def index_put(x: Any, indices: Sequence[Any], values: Any, accumulate: bool = False) -> Any:
    place = x.at[_indices(indices)]
    return place.add(values) if accumulate else place.set(values)


def index_select(x: Any, dim: int, index: Any) -> Any:
    return jnp.take(x, index, axis=dim)


def gather(x: Any, dim: int, index: Any, *, sparse_grad: bool = False) -> Any:
    del sparse_grad
    return x[_along(x, dim, index)]


def scatter_add(x: Any, dim: int, index: Any, source: Any) -> Any:
    cut = source[tuple(builtins.slice(size) for size in index.shape)]
    return x.at[_along(x, dim, index)].add(cut)


def _along(x: Any, dim: int, index: Any) -> tuple[Any, ...]:
    places = list(jnp.indices(index.shape, sparse=True))
    places[dim] = index
    return tuple(places)


# --- convolutions --------------------------------------------------------------------------------


def convolution(
    x: Any,
    weight: Any,
    bias: Any,
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
    transposed: bool,
    output_padding: Sequence[int],
    groups: int,
) -> Any:
    rank = x.ndim - 2
    stride, padding, dilation, more = (
        tuple(given) * (rank if len(given) == 1 else 1)
        for given in (stride, padding, dilation, output_padding)
    )
    margins = [(p, p) for p in padding]
    if transposed:
        # A transposed convolution is the gradient of a convolution: a convolution over its input
        # spread out by the stride.
        spans = [d * (size - 1) for d, size in zip(dilation, weight.shape[2:], strict=True)]
        margins = [(s - p, s - p + m) for s, p, m in zip(spans, padding, more, strict=True)]
        weight = jnp.flip(weight, tuple(range(2, x.ndim)))
        apart = weight.reshape(groups, -1, *weight.shape[1:]).swapaxes(1, 2)
        weight = apart.reshape(-1, *apart.shape[2:])
    found = jax.lax.conv_general_dilated(
        x,
        weight,
        window_strides=(1,) * rank if transposed else stride,
        padding=margins,
        lhs_dilation=stride if transposed else None,
        rhs_dilation=dilation,
        feature_group_count=groups,
    )
    return found if bias is None else found + bias.reshape(-1, *(1,) * rank)


# --- new tensors ---------------------------------------------------------------------------------


def full(size: Sequence[int], value: Any, *, dtype: str | None = None) -> Any:
    return jnp.full(tuple(size), value, dtype)


def full_like(x: Any, value: Any, *, dtype: str | None = None) -> Any:
    return jnp.full_like(x, value, dtype=dtype)


def empty(size: Sequence[int], *, dtype: str | None = None) -> Any:
    return jnp.zeros(tuple(size), dtype)


def empty_permuted(size: Sequence[int], order: Sequence[int], *, dtype: str | None = None) -> Any:
    del order
    return empty(size, dtype=dtype)


def scalar_tensor(value: Any, *, dtype: str | None = None) -> Any:
    return jnp.asarray(value, dtype)


def arange(start: Any, end: Any = None, step: Any = 1, *, dtype: str | None = None) -> Any:
    return jnp.arange(start, end, step, dtype=dtype)


def _to_copy(x: Any, *, dtype: str | None = None) -> Any:
    return x if dtype is None else x.astype(dtype)


# --- Fourier transforms ------------------------------------------------------------------------

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
