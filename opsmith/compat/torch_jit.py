"""The types of TorchScript's graphs, whose values are passed to functions that make ONNX nodes.

They exist in every release of PyTorch since 1.0, in ``torch._C`` only.
"""

from __future__ import annotations

from typing import Any

import torch

#: Private: ``torch._C.Value``. Distinguishes a value of the graph that TorchScript exports from a
#: number, and would be the annotation of such arguments.
Value: Any = torch._C.Value


def dtype_of(value: Any) -> torch.dtype | None:
    """Return the dtype that a graph records of a value; `None` if it records none.

    Private: ``torch._C.TensorType``. Without it, exports by TorchScript do not know dtypes.
    """
    type_ = value.type()
    return type_.dtype() if isinstance(type_, torch._C.TensorType) else None


def sizes_of(value: Any) -> list[int | None] | None:
    """Return the sizes that a graph records of a value; `None` for each size that varies.

    Private: ``torch._C.TensorType``. Without it, exports by TorchScript do not know shapes.
    """
    type_ = value.type()
    found = type_.varyingSizes() if isinstance(type_, torch._C.TensorType) else None
    return None if found is None else list(found)


def record(value: Any, dtype: torch.dtype, sizes: Any) -> None:
    """Have a graph record a tensor's dtype, and its sizes unless they are `None`.

    Private: ``torch._C.TensorType.get``. Without it, the outputs of an exported model have no type.
    """
    type_ = torch._C.TensorType.get().with_dtype(dtype)
    value.setType(type_ if sizes is None else type_.with_sizes(sizes))


def absent(graph: Any) -> Any:
    """Make the value of an absent argument.

    Private: ``torch._C.NoneType.get``. Without it, TorchScript exports no optional inputs.
    """
    made = graph.op("prim::Constant")
    made.setType(torch._C.NoneType.get())
    return made
