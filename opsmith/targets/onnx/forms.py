"""Choose among the forms that a custom operator can have in an ONNX model.

* ``standard``: ONNX's own operators, as `register_onnx` defines. Runs anywhere, as fast as the
  runtime's own kernels.
* ``library``: one node in the operator's domain, run by the operator's own kernel from a library
  beside the model.
* ``inline``: the reference, decomposed into ONNX's operators. Runs anywhere.

By default the first form of this list that works is chosen.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from opsmith.errors import FormError
from opsmith.kernels import HOST
from opsmith.operators import Operator
from opsmith.operators.core.arguments import dtype_name, generic_dtype
from opsmith.operators.core.onnx_choice import translation_of
from opsmith.signature.dtypes import COMPLEX
from opsmith.targets.exporting.lowering.choice import (
    INLINE,
    Choice,
    Chooser,
    call_arguments,
    inline,
)
from opsmith.targets.exporting.operator_export import left_out
from opsmith.targets.onnx.node import NodeLayout


@dataclass(frozen=True)
class Made:
    """The libraries of an operator for one runtime.

    Attributes:
        paths: path of each library by the device type of its kernel.
        device: the device type that the model will run on.
        dtypes: the generic dtypes of the kernel for `device`; empty if the operator is not generic.
    """

    paths: Mapping[str, Path]
    device: str
    dtypes: tuple[str, ...]


Library = Callable[[Operator], Made]
"""Makes the runtime's libraries of an operator. Raises ExportError where that is not possible."""


def chooser(wanted: str | Mapping[str, str], opset: int, library: Library | None) -> Chooser:
    """Return the chooser among the forms of ONNX.

    Args:
        wanted: see `Chooser`.
        library: makes libraries; `None` for a target without libraries.
    """

    def standard(operator: Operator, nodes: Sequence[Node]) -> Choice:
        del nodes
        return _standard(operator, opset)

    def in_library(operator: Operator, nodes: Sequence[Node]) -> Choice:
        return _in_library(operator, nodes, library)

    def inlined(operator: Operator, nodes: Sequence[Node]) -> Choice:
        choice = inline(operator, nodes)
        # A bare ONNX file never runs kernels, so the note would be pointless.
        unused = "" if library is None else left_out(operator.kernels.get(HOST))
        return replace(choice, note=f"{choice.note}; {unused}") if unused else choice

    return Chooser(
        wanted, {"standard": standard, "library": in_library, INLINE: inlined}, runtime="ONNX"
    )


def written_list(operator: Operator) -> str:
    """Return why a node cannot have the new contents of a list; empty if no list is written."""
    for parameter in operator.signature.mutated:
        if parameter.is_tensor_list:
            return (
                f"writes into the list {parameter.name!r}, and an operator of ONNX has a fixed "
                "number of outputs. Export it in the inline form, or write into separate tensor "
                "arguments."
            )
    return ""


def _standard(operator: Operator, opset: int) -> Choice:
    problem = written_list(operator)
    if problem:
        raise FormError(operator.name, problem)
    best = translation_of(operator, opset)
    note = best.how if isinstance(best.how, str) else best.note
    return Choice(operator, "standard", note, how=best)


def _in_library(operator: Operator, nodes: Sequence[Node], library: Library | None) -> Choice:
    if library is None:
        raise FormError(
            operator.name,
            "the library form is for a runtime with operator libraries "
            '(target="onnxruntime"); a bare ONNX file has none',
        )
    for node in nodes:
        _require_carried(operator, node)
    made = library(operator)
    for node in nodes:
        generic = generic_dtype(operator.signature, call_arguments(operator, node), _dtype_of)
        if generic and made.dtypes and generic not in made.dtypes:
            raise FormError(
                operator.name,
                f"the model calls it in {generic}, and its {made.device.upper()} kernel has "
                f"{', '.join(made.dtypes)}. Add {generic} to its OPSMITH_KERNEL line, or export it "
                "in the inline form.",
            )
    return Choice(operator, "library", how=made.paths)


def _require_carried(operator: Operator, node: Node) -> None:
    """Refuse a call with values that an ONNX node cannot hold."""
    arguments = call_arguments(operator, node)
    NodeLayout(operator.signature).attribute_values(arguments)
    for parameter in operator.signature.tensors:
        value = arguments[parameter.name]
        for item in value if isinstance(value, list | tuple) else [value]:
            _require_dtype(operator, f"argument {parameter.name!r}", item)
    returned = node.meta.get("val")
    for item in returned if isinstance(returned, list | tuple) else [returned]:
        _require_dtype(operator, "its result", item)


def _require_dtype(operator: Operator, what: str, item: Any) -> None:
    value = item.meta.get("val") if isinstance(item, Node) else item
    if isinstance(value, Tensor) and dtype_name(value.dtype) in COMPLEX:
        raise FormError(
            operator.name,
            f"{what} is {dtype_name(value.dtype)}, and ONNX Runtime does not support "
            "complex numbers. Pass real and imaginary parts (torch.view_as_real).",
        )


def _dtype_of(item: Any) -> torch.dtype | None:
    tensor = item.meta.get("val") if isinstance(item, Node) else item
    return tensor.dtype if isinstance(tensor, torch.Tensor) else None
