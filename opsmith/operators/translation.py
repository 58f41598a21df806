"""What an author says about computing an operator with another runtime's own operators."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from opsmith.compat.torch_onnx import registered_symbolics
from opsmith.errors import ExportError
from opsmith.operators.written import where_written

if TYPE_CHECKING:
    from opsmith.operators.base import Operator


@dataclass(frozen=True)
class OnnxTranslation:
    """A way to compute an operator with standard ONNX operators; the ONNX target reads it.

    Attributes:
        how: the name of one ONNX operator; or ``how(op, *arguments)``; or, with `symbolic`,
            ``how(g, *arguments)`` as ``torch.autograd.Function.symbolic`` has it.
        opset: the first opset of ONNX in which it holds.
        inputs: with a name, the parameters that are the node's inputs, in its order; every tensor
            by default.
        attributes: with a name, the node's attributes: a parameter's name, a function of the
            arguments by name, or the value itself.
        symbolic: whether `how` takes a TorchScript graph.
        where: the file and line that say it, for messages.
        note: what reports of exports say of it.
    """

    how: str | Callable[..., Any]
    opset: int = 1
    inputs: Sequence[str] | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)
    symbolic: bool = False
    where: str = field(default="", compare=False)
    note: str = ""


def is_symbolic(how: Callable[..., Any]) -> bool:
    """Tell a function that was written for torch.onnx: its first parameter is the graph, ``g``."""
    try:
        parameters = inspect.signature(how).parameters
    except (TypeError, ValueError):
        return False
    return next(iter(parameters), None) == "g"


def translations(operator: Operator) -> list[OnnxTranslation]:
    """Return all that is known: of ``torch.onnx.register_custom_op_symbolic``, and of opsmith."""
    return [*_of_torch(operator), *operator.onnx_translations]


_REGISTERED = "torch.onnx.register_custom_op_symbolic"


def _of_torch(operator: Operator) -> list[OnnxTranslation]:
    return [
        OnnxTranslation(
            function, opset, symbolic=True, where=where_written(function), note=_REGISTERED
        )
        for opset, function in registered_symbolics(operator.overload._schema.name).items()
    ]


def latest(operator: Operator, opset: int) -> OnnxTranslation | None:
    """Return the translation that an export of `opset` takes: the latest that holds there.

    What was registered with torch.onnx comes first, as it does there before PyTorch's own.
    """
    for known in (_of_torch(operator), operator.onnx_translations):
        usable = [one for one in known if one.opset <= opset]
        if usable:
            return max(usable, key=lambda one: one.opset)
    return None


def translation_of(operator: Operator, opset: int) -> OnnxTranslation:
    """Return the translation of an operator that must have one; see `latest`.

    Raises:
        ExportError: it has none, or none in this opset.
    """
    known = translations(operator)
    if not known:
        raise ExportError(
            f"{operator.name}: says nothing of standard ONNX operators; "
            f"{operator.signature.name}.register_onnx is the way to say it"
        )
    best = latest(operator, opset)
    if best is None:
        first = min(one.opset for one in known)
        raise ExportError(
            f"{operator.name}: its standard form needs opset {first}, and the export is of "
            f"opset {opset}. Pass opset={first} or higher."
        )
    return best
