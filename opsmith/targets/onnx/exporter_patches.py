"""Replace translations of the TorchScript exporter that are wrong or missing."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.onnx import symbolic_opset9, symbolic_opset11, symbolic_opset12

from opsmith.compat import torch_onnx
from opsmith.errors import ExportError
from opsmith.operators.core.arguments import dtype_name
from opsmith.targets.onnx import decompositions
from opsmith.targets.onnx.node import ELEMENT_TYPES


def _index_add(g: Any, data: Any, dim: Any, index: Any, source: Any, alpha: Any = None) -> Any:
    """Translate to ScatterElements that adds; the exporter's translation drops repeated indices."""
    if g.opset < 16:
        raise ExportError(f"aten::index_add: needs opset 16, and the export is of opset {g.opset}")
    axis = torch_onnx.constant(dim, "i", "dim")
    sizes = torch_onnx.sizes_of(data)
    if sizes is None:
        raise ExportError(f"aten::index_add: along dimension {axis} of a tensor of unknown rank")
    factor = 1 if alpha is None else torch_onnx.constant(alpha, "f", "alpha")
    if factor != 1:
        scale = g.op("CastLike", g.op("Constant", value_t=torch.tensor(factor)), source)
        source = g.op("Mul", source, scale)
    shape = [1] * len(sizes)
    shape[axis] = -1
    wide = g.op("Cast", index, to_i=ELEMENT_TYPES["int64"])
    places = g.op("Reshape", wide, g.op("Constant", value_t=torch.tensor(shape)))
    everywhere = g.op("Expand", places, g.op("Shape", source))
    return g.op("ScatterElements", data, everywhere, source, axis_i=axis, reduction_s="add")


def _index_put(g: Any, data: Any, indices: Any, values: Any, accumulate: Any = False) -> Any:
    """Use the exporter's translation, but refuse ``accumulate``: it drops repeated indices."""
    if torch_onnx.parsed(accumulate, "b"):
        raise ExportError(
            "aten::index_put: with accumulate=True the TorchScript exporter loses repeated "
            'indices. Write it as index_add, or export with exporter="dynamo".'
        )
    return symbolic_opset11.index_put(g, data, indices, values, accumulate)


def _copy(g: Any, data: Any, source: Any, non_blocking: Any = None) -> Any:
    """Translate the functional form of ``copy_``, for which the exporter has no translation."""
    dtype = torch_onnx.dtype_of(data)
    if dtype is not None and source.type().dtype() != dtype:
        source = g.op("Cast", source, to_i=ELEMENT_TYPES[dtype_name(dtype)])
    return g.op("Expand", source, g.op("Shape", data))


def _unfold(g: Any, data: Any, dim: Any, size: Any, step: Any) -> Any:
    """Translate windows; the exporter is wrong for dimensions before the last but one."""
    axis, size_, step_ = (
        torch_onnx.constant(value, "i", name)
        for value, name in ((dim, "dimension"), (size, "size"), (step, "step"))
    )
    sizes = torch_onnx.sizes_of(data)
    if sizes is None or sizes[axis] is None:
        return symbolic_opset12.unfold(g, data, axis, size, step)
    axis %= len(sizes)
    first = torch.arange(0, sizes[axis] - size_ + 1, step_)
    places = g.op("Constant", value_t=first[:, None] + torch.arange(size_))
    windows = g.op("Gather", data, places, axis_i=axis)
    order = [place for place in range(len(sizes) + 1) if place != axis + 1]
    return g.op("Transpose", windows, perm_i=[*order, axis + 1])


def _cumsum(g: Any, data: Any, dim: Any, dtype: Any = None) -> Any:
    """Add up booleans and integers in 64 bits; the exporter's translation keeps their dtype."""
    if torch_onnx.is_absent(dtype) and not torch_onnx.is_float(data):
        data = g.op("Cast", data, to_i=ELEMENT_TYPES["int64"])
    return symbolic_opset11.cumsum(g, data, dim, dtype)


def _where(g: Any, condition: Any, data: Any = None, other: Any = None, *more: Any) -> Any:
    """Choose among booleans by logic: ONNX Runtime's Where takes none."""
    if other is None or not _are_booleans(data, other):
        return symbolic_opset9.where(g, condition, data, other, *more)
    others = g.op("And", g.op("Not", condition), other)
    return g.op("Or", g.op("And", condition, data), others)


def _add(g: Any, data: Any, other: Any, alpha: Any = None) -> Any:
    """Add booleans by logic: ONNX's Add takes none."""
    if _are_booleans(data, other):
        return g.op("Or", data, other)
    return symbolic_opset9.add(g, data, other, alpha)


def _are_booleans(*values: Any) -> bool:
    return all(torch_onnx.dtype_of(value) == torch.bool for value in values)


def _floor_divide(g: Any, data: Any, divisor: Any) -> Any:
    """Round down; the exporter's translation rounds towards zero, as PyTorch used to."""
    if torch_onnx.is_float(data) or torch_onnx.is_float(divisor):
        return g.op("Floor", symbolic_opset9.true_divide(g, data, divisor))
    rest = g.op("Mod", data, divisor)  # Has the divisor's sign.
    return g.op("Div", g.op("Sub", data, rest), divisor)


def _shift_right(g: Any, data: Any, bits: Any) -> Any:
    """Round down, as a shift of a negative number does; the exporter's translation truncates."""
    if torch_onnx.dtype_of(data) == torch.uint8:
        return g.op("BitShift", data, g.op("CastLike", bits, data), direction_s="RIGHT")
    return _floor_divide(g, data, g.op("Pow", _number(g, 2, data), g.op("CastLike", bits, data)))


def _number(g: Any, value: float, like: Any) -> Any:
    return g.op("CastLike", g.op("Constant", value_t=torch.tensor(value)), like)


def _log1p(g: Any, data: Any) -> Any:
    """Compute log(1 + x) without losing the digits of a small x (W. Kahan's method)."""
    one = _number(g, 1.0, data)
    near = g.op("Add", data, one)
    return _exact_near_zero(g, data, g.op("Log", near), g.op("Sub", near, one))


def _expm1(g: Any, data: Any) -> Any:
    """Compute exp(x) - 1 without losing the digits of a small x (W. Kahan's method)."""
    power = g.op("Exp", data)
    step = g.op("Sub", power, _number(g, 1.0, data))
    return _exact_near_zero(g, data, step, g.op("Log", power))


def _exact_near_zero(g: Any, data: Any, image: Any, rounded: Any) -> Any:
    """Correct the image of `rounded`, which is `data` after rounding, by the ratio of the two."""
    exact = g.op("Mul", image, g.op("Div", data, rounded))
    exact = g.op("Where", g.op("Equal", rounded, _number(g, 0.0, data)), data, exact)
    near = g.op("Less", g.op("Abs", data), _number(g, 1.0, data))
    return g.op("Where", near, exact, image)


def _elu(g: Any, data: Any, alpha: Any, scale: Any, input_scale: Any) -> Any:
    """Compute by `_expm1`; ONNX Runtime subtracts 1 from the exponential, which loses digits."""

    def times(value: Any, factor: Any) -> Any:
        number = torch_onnx.constant(factor, "f", "factor")
        return value if number == 1 else g.op("Mul", value, _number(g, number, data))

    below = times(times(_expm1(g, times(data, input_scale)), alpha), scale)
    return g.op("Where", g.op("Greater", data, _number(g, 0.0, data)), times(data, scale), below)


def _selu(g: Any, data: Any) -> Any:
    return _elu(g, data, *decompositions.SELU, 1.0)


def _celu(g: Any, data: Any, alpha: Any) -> Any:
    return _elu(g, data, alpha, 1.0, 1 / torch_onnx.constant(alpha, "f", "alpha"))


def _log_sigmoid(g: Any, data: Any) -> Any:
    """Compute without an exponential that overflows for inputs below -89."""
    rest = _log1p(g, g.op("Exp", g.op("Neg", g.op("Abs", data))))
    return g.op("Sub", g.op("Min", data, _number(g, 0.0, data)), rest)


def _bce_with_logits(
    g: Any, data: Any, target: Any, weight: Any, pos_weight: Any, reduction: Any
) -> Any:
    """Compute by `_log_sigmoid`, which does not overflow."""
    one = _number(g, 1.0, data)
    right = _log_sigmoid(g, data)
    if not torch_onnx.is_absent(pos_weight):
        more = g.op("Mul", g.op("Sub", pos_weight, one), target)
        right = g.op("Mul", g.op("Add", one, more), right)
    loss = g.op("Sub", g.op("Mul", g.op("Sub", one, target), data), right)
    if not torch_onnx.is_absent(weight):
        loss = g.op("Mul", loss, weight)
    how = torch_onnx.constant(reduction, "i", "reduction")
    if how == 0:
        return loss
    return g.op("ReduceMean" if how == 1 else "ReduceSum", loss, keepdims_i=0)


def _atan2(g: Any, data: Any, other: Any) -> Any:
    """Mirror the angle in the first quadrant; the exporter's own is -pi on the negative axis."""
    zero, pi = _number(g, 0.0, data), _number(g, math.pi, data)
    angle = g.op("Atan", g.op("Div", g.op("Abs", data), g.op("Abs", other)))
    origin = g.op("And", g.op("Equal", data, zero), g.op("Equal", other, zero))
    angle = g.op("Where", origin, zero, angle)
    angle = g.op("Where", g.op("Less", other, zero), g.op("Sub", pi, angle), angle)
    return g.op("Where", g.op("Less", data, zero), g.op("Neg", angle), angle)


def _cdist(g: Any, x1: Any, x2: Any, p: Any, compute_mode: Any = None) -> Any:
    """Use the exporter's own translation, but refuse any p other than 2, where it is wrong."""
    if torch_onnx.parsed(p, "f") != 2:
        raise ExportError(
            "aten::cdist: the TorchScript exporter is wrong for any p except 2. Write the distance "
            'out, or export with exporter="dynamo".'
        )
    return symbolic_opset9.cdist(g, x1, x2, p, compute_mode)


def _pairwise_distance(g: Any, x1: Any, x2: Any, p: Any, eps: Any, keepdim: Any) -> Any:
    """Add epsilon to each difference; the exporter's own translation omits it."""
    power = torch_onnx.constant(p, "f", "p")
    if not 0 < power < math.inf:
        raise ExportError(
            f"aten::pairwise_distance: the TorchScript exporter does not support p={power}. Write "
            'the distance out, or export with exporter="dynamo".'
        )
    small = _number(g, torch_onnx.constant(eps, "f", "eps"), x1)
    difference = g.op("Abs", g.op("Add", g.op("Sub", x1, x2), small))
    powers = g.op("Pow", difference, _number(g, power, x1))
    kept = torch_onnx.constant(keepdim, "b", "keepdim")
    total = torch_onnx.summed(g, powers, -1, kept=kept)
    return g.op("Pow", total, _number(g, 1 / power, x1))


def _cosine_similarity(g: Any, x1: Any, x2: Any, dim: Any, eps: Any) -> Any:
    """Bound each length by epsilon; the exporter's own translation bounds their product."""
    axis = torch_onnx.constant(dim, "i", "dim")
    small = _number(g, torch_onnx.constant(eps, "f", "eps"), x1)

    def total(value: Any, kept: bool) -> Any:
        return torch_onnx.summed(g, value, axis, kept=kept)

    def direction(x: Any) -> Any:
        return g.op("Div", x, g.op("Max", g.op("Sqrt", total(g.op("Mul", x, x), True)), small))

    return total(g.op("Mul", direction(x1), direction(x2)), False)


PATCHES: dict[str, Callable[..., Any]] = {
    "aten::__rshift_": _shift_right,
    "aten::add": _add,
    "aten::atan2": _atan2,
    "aten::binary_cross_entropy_with_logits": _bce_with_logits,
    "aten::cdist": _cdist,
    "aten::celu": _celu,
    "aten::copy": _copy,
    "aten::cosine_similarity": _cosine_similarity,
    "aten::cumsum": _cumsum,
    "aten::elu": _elu,
    "aten::expm1": _expm1,
    "aten::floor_divide": _floor_divide,
    "aten::index_add": _index_add,
    "aten::index_put": _index_put,
    "aten::log1p": _log1p,
    "aten::log_sigmoid": _log_sigmoid,
    "aten::pairwise_distance": _pairwise_distance,
    "aten::selu": _selu,
    "aten::unfold": _unfold,
    "aten::where": _where,
}
"""The functions that make nodes, by operator."""
