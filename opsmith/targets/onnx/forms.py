"""The forms that a custom operator can take in an ONNX model, and what each asks of it.

* ``standard``: ONNX's own operators, as `register_onnx` says. Runs anywhere, as fast as the
  runtime's own kernels.
* ``library``: one node in the operator's domain, run by the operator's own kernel from a library
  beside the model.
* ``inline``: the reference, taken apart into ONNX's operators. Runs anywhere.

Left to itself the best that works is taken, in this order.
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
    """A runtime's libraries of an operator.

    Attributes:
        paths: each by the device type of its kernel.
        device: the device type that the model is to run on.
        dtypes: the generic dtypes of that one; none where the operator is not generic.
    """

    paths: Mapping[str, Path]
    device: str
    dtypes: tuple[str, ...]


Library = Callable[[Operator], Made]
"""Makes the runtime's libraries of an operator. Raises ExportError where there can be none."""


def chooser(wanted: str | Mapping[str, str], opset: int, library: Library | None) -> Chooser:
    """Chooses among the forms of ONNX.

    Args:
        wanted: see `Chooser`.
        opset: the opset that is exported.
        library: makes libraries, `None` for a target that has none.

    Raises:
        ExportError: there is no such form.
    """

    def standard(operator: Operator, nodes: Sequence[Node]) -> Choice:
        del nodes
        return _standard(operator, opset)

    def in_library(operator: Operator, nodes: Sequence[Node]) -> Choice:
        return _in_library(operator, nodes, library)

    def inlined(operator: Operator, nodes: Sequence[Node]) -> Choice:
        choice = inline(operator, nodes)
        # A bare ONNX file runs no kernels at all.
        unused = "" if library is None else left_out(operator.kernels.get(HOST))
        return replace(choice, note=f"{choice.note}; {unused}") if unused else choice

    return Chooser(
        wanted, {"standard": standard, "library": in_library, INLINE: inlined}, runtime="ONNX"
    )


def _standard(operator: Operator, opset: int) -> Choice:
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
    """Refuse what a node of ONNX cannot hold.

    Raises:
        ExportError: naming the argument.
    """
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
            f"{what} is {dtype_name(value.dtype)}, and ONNX Runtime computes with "
            "no complex numbers. Pass real and imaginary parts (torch.view_as_real).",
        )


def _dtype_of(item: Any) -> torch.dtype | None:
    tensor = item.meta.get("val") if isinstance(item, Node) else item
    return tensor.dtype if isinstance(tensor, torch.Tensor) else None
