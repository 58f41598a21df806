"""Decompose operators that the exporter translates wrongly, or only in some calls."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import SymInt, Tensor

#: Alpha and scale of SELU.
SELU = (1.6732632423543772, 1.0507009873554805)
_aten = torch.ops.aten


def _split(input: Tensor, size: int | SymInt, dim: int = 0) -> Any:
    """Split into slices if the size is a symbol: the optimizer mistakes it for a constant."""
    if not isinstance(size, SymInt):
        return NotImplemented
    total = input.shape[dim]
    count = int((total + size - 1) // size)
    sizes = [size] * (count - 1) + [total - size * (count - 1)]
    return [input.narrow(dim, size * i, part) for i, part in enumerate(sizes)]


# --- translated wrongly --------------------------------------------------------------------------


def _scatter_mean(
    input: Tensor, dim: int, index: Tensor, src: Tensor, reduce: str, *, include_self: bool = True
) -> Any:
    """Compute a mean from sum and count: ONNX lacks this reduction, and the exporter drops it."""
    if reduce != "mean":
        return NotImplemented
    own = torch.ones_like(input) if include_self else torch.zeros_like(input)
    total = (input if include_self else own).scatter_add(dim, index, src)
    count = own.scatter_add(dim, index, torch.ones_like(src))
    rounding = None if input.is_floating_point() else "floor"
    mean = torch.div(total, count.clamp(min=1), rounding_mode=rounding)
    return mean if include_self else torch.where(count > 0, mean, input)


def _log_sigmoid(input: Tensor) -> Tensor:
    """Compute without an exponential that overflows for inputs below -89."""
    return input.clamp(max=0) - _log1p(torch.exp(-input.abs()))


def _bce_with_logits(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    pos_weight: Tensor | None = None,
    reduction: int = 1,
) -> Tensor:
    """Compute by `_log_sigmoid`, which does not overflow."""
    factor = 1 if pos_weight is None else 1 + (pos_weight - 1) * target
    loss = (1 - target) * input - factor * _log_sigmoid(input)
    loss = loss if weight is None else loss * weight
    return loss.mean() if reduction == 1 else loss.sum() if reduction == 2 else loss


def _cross_entropy(
    input: Tensor,
    target: Tensor,
    weight: Tensor | None = None,
    reduction: int = 1,
    ignore_index: int = -100,
    label_smoothing: float = 0.0,
) -> Any:
    """Smooth the labels, which the exporter omits, and support probabilities, which it refuses."""
    shares = target.is_floating_point()
    if not (label_smoothing or shares):
        return NotImplemented
    dim = min(1, input.dim() - 1)
    smoothing, logarithms = label_smoothing / input.shape[dim], input.log_softmax(dim)
    ones = [1] * (input.dim() - dim - 1)
    weighed = logarithms if weight is None else logarithms * weight.reshape(-1, *ones)
    if shares:
        loss = -(weighed * (target * (1 - label_smoothing) + smoothing)).sum(dim)
        return loss.mean() if reduction == 1 else loss.sum() if reduction == 2 else loss
    right = _aten.nll_loss_nd(logarithms, target, weight, reduction, ignore_index)
    counted = target.ne(ignore_index)
    others = torch.where(counted, -weighed.sum(dim), 0.0)
    if reduction:
        others = others.sum()
    if reduction == 1:
        count = counted if weight is None else weight[torch.where(counted, target, 0)] * counted
        others = others / count.sum()
    return (1 - label_smoothing) * right + smoothing * others


def _log1p(input: Tensor) -> Tensor:
    """Compute log(1 + x) without losing the digits of a small x (W. Kahan's method)."""
    near = 1 + input
    step = near - 1
    exact = torch.where(step == 0, input, near.log() * (input / step))
    return torch.where(input.abs() < 1, exact, near.log())


def _expm1(input: Tensor) -> Tensor:
    """Compute exp(x) - 1 without losing the digits of a small x (W. Kahan's method)."""
    power = input.exp()
    step = power - 1
    exact = torch.where(step == 0, input, step * (input / power.log()))
    return torch.where(input.abs() < 1, exact, step)


def _elu(input: Tensor, alpha: float = 1.0, scale: float = 1.0, input_scale: float = 1.0) -> Tensor:
    """Compute by `_expm1`; ONNX Runtime subtracts 1 from the exponential, which loses digits."""
    below = _expm1(input * input_scale) * (alpha * scale)
    return torch.where(input > 0, input * scale, below)


def _selu(input: Tensor) -> Tensor:
    return _elu(input, *SELU)


def _celu(input: Tensor, alpha: float = 1.0) -> Tensor:
    return _elu(input, alpha, 1.0, 1 / alpha)


def _cosine_similarity(x1: Tensor, x2: Tensor, dim: int = 1, eps: float = 1e-8) -> Any:
    """Return the dtype of the arguments; the exporter would return single precision."""
    if x1.dtype not in (torch.float16, torch.bfloat16):
        return NotImplemented
    return _aten.cosine_similarity(x1.float(), x2.float(), dim, eps).to(x1.dtype)


def _log_add_exp(input: Tensor, other: Tensor) -> Tensor:
    """Factor out the larger argument, so that no exponential overflows."""
    larger = torch.maximum(input, other)
    both = larger + _log1p(torch.exp(-(input - other).abs()))
    return torch.where((input == other) & larger.isinf(), larger, both)


def _sign_bit(input: Tensor) -> Tensor:
    """Return whether the sign bit is set, also for -0; the sign bit of a NaN is not detected."""
    if not input.is_floating_point():
        return input < 0
    return (input < 0) | ((input == 0) & (input.reciprocal() < 0))


def _atan2(input: Tensor, other: Tensor) -> Tensor:
    """Compute the angle in the first quadrant and mirror it, so that the signs of zeros count."""
    y, x = input.abs(), other.abs()
    angle = torch.where((y == 0) & (x == 0), 0.0, torch.atan(y / x))
    angle = torch.where(y.isinf() & x.isinf(), math.pi / 4, angle)
    angle = torch.where(_sign_bit(other), math.pi - angle, angle)
    return torch.where(_sign_bit(input), -angle, angle)


def _arange(start: Any, end: Any, step: Any = 1, *, dtype: Any = None, **options: Any) -> Any:
    """Count in double precision: in single, 1.2 / 0.2 exceeds 6, which adds an element."""
    fixed = all(isinstance(one, int | float) for one in (start, end, step))
    if not fixed or not any(isinstance(one, float) for one in (start, end, step)):
        return NotImplemented
    counts = torch.arange(
        math.ceil((end - start) / step), dtype=torch.float64, device=options.get("device")
    )
    return (counts * step + start).to(dtype or torch.get_default_dtype())


def _shift_right(input: Tensor, bits: int) -> Any:
    """Shift bytes by a division; the exporter would make the result signed."""
    if input.dtype != torch.uint8 or not 0 <= bits < 8:
        return NotImplemented
    return torch.div(input, 1 << bits, rounding_mode="floor")


def _shift_left(input: Tensor, bits: int) -> Any:
    """Shift bytes by a multiplication; the exporter would make the result signed."""
    if input.dtype != torch.uint8 or not 0 <= bits < 8:
        return NotImplemented
    return input * (1 << bits)


def _places(repeats: Tensor, output_size: Any) -> Tensor:
    """Return each position as often as `repeats` says."""
    if output_size is None:
        positions: Tensor = _aten.repeat_interleave.Tensor(repeats.long())
        return positions
    ends = repeats.long().cumsum(0)
    return (torch.arange(output_size, device=repeats.device) >= ends.unsqueeze(-1)).sum(0)


def _repeat_interleave(repeats: Tensor, *, output_size: Any = None) -> Any:
    """Accept the number of results, and counts of 32 bits, at both of which the exporter fails."""
    if output_size is None and repeats.dtype == torch.int64:
        return NotImplemented
    return _places(repeats, output_size).to(repeats.dtype)


def _repeat_each(
    input: Tensor, repeats: Tensor, dim: int | None = None, *, output_size: Any = None
) -> Any:
    """Select elements by `_places`; see `_repeat_interleave`."""
    if output_size is None and repeats.dtype == torch.int64:
        return NotImplemented
    along = input.flatten() if dim is None else input
    axis = 0 if dim is None else dim
    counts = repeats.expand(along.shape[axis]) if repeats.numel() == 1 else repeats
    return along.index_select(axis, _places(counts, output_size))


def _repeat_all(
    input: Tensor, repeats: int | SymInt, dim: int | None = None, *, output_size: Any = None
) -> Tensor:
    """Repeat along a new dimension; where `repeats` is a symbol, the exporter takes another."""
    del output_size
    along = input.flatten() if dim is None else input
    axis = 0 if dim is None else dim % along.dim()
    sizes = [*along.shape[: axis + 1], repeats, *along.shape[axis + 1 :]]
    return along.unsqueeze(axis + 1).expand(sizes).flatten(axis, axis + 1)


# --- not translated ------------------------------------------------------------------------------


def _stable_sort(
    input: Tensor, *, stable: bool | None = None, dim: int = -1, descending: bool = False
) -> Any:
    """Sort without asking for stability: ONNX always sorts stably."""
    del stable
    return input.sort(dim, descending)


def _cdist(x1: Tensor, x2: Tensor, p: float = 2.0, compute_mode: int | None = None) -> Tensor:
    """Compute distances from all differences, which takes memory for each."""
    del compute_mode
    difference = (x1.unsqueeze(-2) - x2.unsqueeze(-3)).abs()
    if p == 0:
        return (difference != 0).to(x1.dtype).sum(-1)
    if p == 1:
        return difference.sum(-1)
    if p == 2:
        return difference.square().sum(-1).sqrt()
    if p == math.inf:
        return difference.amax(-1)
    return difference.pow(p).sum(-1).pow(1 / p)


def _hypot(input: Tensor, other: Tensor) -> Tensor:
    """Scale by the larger argument, so that no square overflows."""
    a, b = input.abs(), other.abs()
    larger, smaller = torch.maximum(a, b), torch.minimum(a, b)
    ratio = torch.where(larger == 0, 0.0, smaller / larger)
    return torch.where(a.isinf() | b.isinf(), math.inf, larger * (1 + ratio * ratio).sqrt())


def _fmax(input: Tensor, other: Tensor) -> Tensor:
    return _number_of(input, other, torch.maximum(input, other))


def _fmin(input: Tensor, other: Tensor) -> Tensor:
    return _number_of(input, other, torch.minimum(input, other))


def _number_of(input: Tensor, other: Tensor, chosen: Tensor) -> Tensor:
    return torch.where(input != input, other, torch.where(other != other, input, chosen))


def _where(condition: Tensor, input: Tensor, other: Tensor) -> Any:
    """Choose among booleans by logic: ONNX Runtime's Where takes none."""
    if not input.dtype == other.dtype == torch.bool:
        return NotImplemented
    return (condition & input) | (~condition & other)


def _add(input: Tensor, other: Any, *, alpha: Any = 1) -> Any:
    """Add booleans by logic: ONNX's Add takes none."""
    if not (isinstance(other, Tensor) and input.dtype == other.dtype == torch.bool):
        return NotImplemented
    return input | other


def _copy_sign(input: Tensor, other: Tensor) -> Any:
    dtype = torch.result_type(input, other)
    if not dtype.is_floating_point:
        return NotImplemented
    size = input.to(dtype).abs()
    return torch.where(_sign_bit(other), -size, size)


DECOMPOSITIONS: dict[Any, Callable[..., Any]] = {
    _aten.split.Tensor: _split,
    _aten.scatter_reduce.two: _scatter_mean,
    _aten.log_sigmoid.default: _log_sigmoid,
    _aten.binary_cross_entropy_with_logits.default: _bce_with_logits,
    _aten.cross_entropy_loss.default: _cross_entropy,
    _aten.log1p.default: _log1p,
    _aten.expm1.default: _expm1,
    _aten.special_expm1.default: _expm1,
    _aten.special_log1p.default: _log1p,
    _aten.elu.default: _elu,
    _aten.selu.default: _selu,
    _aten.celu.default: _celu,
    _aten.cosine_similarity.default: _cosine_similarity,
    _aten.logaddexp.default: _log_add_exp,
    _aten.signbit.default: _sign_bit,
    _aten.atan2.default: _atan2,
    _aten.arange.start_step: _arange,
    _aten.__rshift__.Scalar: _shift_right,
    _aten.bitwise_right_shift.Tensor_Scalar: _shift_right,
    _aten.__lshift__.Scalar: _shift_left,
    _aten.bitwise_left_shift.Tensor_Scalar: _shift_left,
    _aten.repeat_interleave.Tensor: _repeat_interleave,
    _aten.repeat_interleave.self_Tensor: _repeat_each,
    _aten.repeat_interleave.self_int: _repeat_all,
    _aten.sort.stable: _stable_sort,
    _aten.cdist.default: _cdist,
    _aten._cdist_forward.default: _cdist,
    _aten.hypot.default: _hypot,
    _aten.fmax.default: _fmax,
    _aten.fmin.default: _fmin,
    _aten.copysign.Tensor: _copy_sign,
    _aten.where.self: _where,
    _aten.add.Tensor: _add,
}
"""Maps overloads to functions that use other operators, or return `NotImplemented`."""
