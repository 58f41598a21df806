"""The author's way to compute an operator with another runtime's own operators."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from opsmith.untyped import Value


@dataclass(frozen=True)
class OnnxTranslation:
    """A way to compute an operator with standard ONNX operators; the ONNX target reads it.

    Attributes:
        how: the name of one ONNX operator; or ``how(op, *arguments)``; or, with `symbolic`,
            ``how(g, *arguments)`` as in ``torch.autograd.Function.symbolic``.
        opset: the first ONNX opset in which the translation is valid.
        inputs: if `how` is a name, the parameters that become the node's inputs, in the node's
            order; every tensor by default.
        attributes: if `how` is a name, the node's attributes: a parameter's name, a function of
            the arguments by name, or the value itself.
        symbolic: whether `how` takes a TorchScript graph.
        where: file and line of the registration, for messages.
        note: the remark that export reports print about the translation.
    """

    how: str | Callable[..., Value]
    opset: int = 1
    inputs: Sequence[str] | None = None
    attributes: Mapping[str, Value] = field(default_factory=dict)
    symbolic: bool = False
    where: str = field(default="", compare=False)
    note: str = ""


def is_symbolic(how: Callable[..., object]) -> bool:
    """Return whether a function is written for torch.onnx: its first parameter is named ``g``."""
    try:
        parameters = inspect.signature(how).parameters
    except (TypeError, ValueError):
        return False
    return next(iter(parameters), None) == "g"
