"""What an author says about computing an operator with another runtime's own operators."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from opsmith.errors import ExportError

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
    """

    how: str | Callable[..., Any]
    opset: int = 1
    inputs: Sequence[str] | None = None
    attributes: Mapping[str, Any] = field(default_factory=dict)
    symbolic: bool = False
    where: str = field(default="", compare=False)


def latest(known: Sequence[OnnxTranslation], opset: int) -> OnnxTranslation | None:
    """The translation that an export of `opset` takes: the latest that holds there."""
    usable = [one for one in known if one.opset <= opset]
    return max(usable, key=lambda one: one.opset, default=None)


def translation_of(operator: Operator, opset: int) -> OnnxTranslation:
    """The same for an operator that has to have one.

    Raises:
        ExportError: it has none, or none in this opset.
    """
    known = operator.onnx_translations
    if not known:
        raise ExportError(
            f"{operator.name}: says nothing of standard ONNX operators; "
            f"{operator.signature.name}.register_onnx is the way to say it"
        )
    best = latest(known, opset)
    if best is None:
        first = min(one.opset for one in known)
        raise ExportError(
            f"{operator.name}: its standard form needs opset {first}, and the export is of "
            f"opset {opset}. Pass opset={first} or higher."
        )
    return best
