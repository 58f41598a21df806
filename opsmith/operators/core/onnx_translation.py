"""What an author says about computing an operator with another runtime's own operators."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


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
