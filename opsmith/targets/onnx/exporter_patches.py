"""What the TorchScript exporter gets wrong or lacks, and references need."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from opsmith.errors import ExportError
from opsmith.operators.arguments import dtype_name
from opsmith.targets.onnx.node import ELEMENT_TYPES


def _index_add(g: Any, data: Any, dim: Any, index: Any, source: Any, alpha: Any = None) -> Any:
    """``index_add`` as ScatterElements that adds; the exporter's own drops what comes twice."""
    from torch.onnx import symbolic_helper

    if g.opset < 16:
        raise ExportError(f"aten::index_add: needs opset 16, and the export is of opset {g.opset}")
    axis = symbolic_helper._get_const(dim, "i", "dim")
    rank = symbolic_helper._get_tensor_rank(data)
    if rank is None:
        raise ExportError(f"aten::index_add: along dimension {axis} of a tensor of unknown rank")
    factor = 1 if alpha is None else symbolic_helper._get_const(alpha, "f", "alpha")
    if factor != 1:
        scale = g.op("CastLike", g.op("Constant", value_t=torch.tensor(factor)), source)
        source = g.op("Mul", source, scale)
    shape = [1] * rank
    shape[axis] = -1
    wide = g.op("Cast", index, to_i=ELEMENT_TYPES["int64"])
    places = g.op("Reshape", wide, g.op("Constant", value_t=torch.tensor(shape)))
    everywhere = g.op("Expand", places, g.op("Shape", source))
    return g.op("ScatterElements", data, everywhere, source, axis_i=axis, reduction_s="add")


def _index_put(g: Any, data: Any, indices: Any, values: Any, accumulate: Any = False) -> Any:
    """The exporter's own, except where it drops what comes twice."""
    from torch.onnx import symbolic_helper, symbolic_opset11

    if symbolic_helper._parse_arg(accumulate, "b"):
        raise ExportError(
            "aten::index_put: with accumulate=True the TorchScript exporter loses what comes "
            'twice. Write it as index_add, or export with exporter="dynamo".'
        )
    return symbolic_opset11.index_put(g, data, indices, values, accumulate)


def _copy(g: Any, data: Any, source: Any, non_blocking: Any = None) -> Any:
    """What ``copy_`` becomes where the exporter has made it functional; it has no mapping of it."""
    dtype = data.type().dtype() if isinstance(data.type(), torch._C.TensorType) else None
    if dtype is not None and source.type().dtype() != dtype:
        source = g.op("Cast", source, to_i=ELEMENT_TYPES[dtype_name(dtype)])
    return g.op("Expand", source, g.op("Shape", data))


def _unfold(g: Any, data: Any, dim: Any, size: Any, step: Any) -> Any:
    """Windows along a dimension; the exporter's own are wrong before the last but one."""
    from torch.onnx import symbolic_helper, symbolic_opset12

    axis, size_, step_ = (
        symbolic_helper._get_const(value, "i", name)
        for value, name in ((dim, "dimension"), (size, "size"), (step, "step"))
    )
    sizes = symbolic_helper._get_tensor_sizes(data)
    if sizes is None or sizes[axis] is None:
        return symbolic_opset12.unfold(g, data, axis, size, step)
    axis %= len(sizes)
    first = torch.arange(0, sizes[axis] - size_ + 1, step_)
    places = g.op("Constant", value_t=first[:, None] + torch.arange(size_))
    windows = g.op("Gather", data, places, axis_i=axis)
    order = [place for place in range(len(sizes) + 1) if place != axis + 1]
    return g.op("Transpose", windows, perm_i=[*order, axis + 1])


PATCHES: dict[str, Callable[..., Any]] = {
    "aten::copy": _copy,
    "aten::index_add": _index_add,
    "aten::index_put": _index_put,
    "aten::unfold": _unfold,
}
"""The functions that make nodes, by operator."""
