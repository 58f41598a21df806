"""Export with the current exporter of torch.onnx, which translates an ExportedProgram."""

from __future__ import annotations

import contextlib
import math
import re
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch.export import ExportedProgram

from opsmith.compat import torch_onnx
from opsmith.compat.onnxscript import constants_compared_by, library_parsed_once, numbers_in_full
from opsmith.compat.torch_ops import OpOverload
from opsmith.errors import ExportError, FormError
from opsmith.operators import Operator
from opsmith.system.temporarily import silenced
from opsmith.targets.exporting.lowering.choice import Choice
from opsmith.targets.exporting.lowering.inlining import Lowered, overload_of
from opsmith.targets.exporting.model import Model
from opsmith.targets.onnx.emitter import Attributes
from opsmith.targets.onnx.node import DOMAIN_VERSION, NodeLayout
from opsmith.targets.onnx.standard import add_node, standard

DEFAULT_OPSET = 20
OPSETS = (18, 23)
"""The first and the last opset that the exporter writes without a conversion afterwards."""


def attribute_kind(value: Any) -> str:
    """Return ONNX's name of the type of a value in `NodeLayout.attribute_values`."""
    many = isinstance(value, list)
    sample = (value[0] if value else 0) if many else value
    kind = {int: "INT", float: "FLOAT", str: "STRING"}[type(sample)]
    return f"{kind}S" if many else kind


def typed_attributes(layout: NodeLayout, arguments: Any) -> Attributes:
    """Return the attributes of an operator's own node, typed by the signature."""
    found: Attributes = []
    for name, value in layout.attribute_values(arguments).items():
        kind = attribute_kind(value)
        if value == [] and layout.signature.by_name[name].type.kind == "float":  # type: ignore[union-attr]
            kind = "FLOATS"
        found.append((name, kind, value))
    return found


def translation_table(choices: Sequence[Choice], opset: int) -> dict[Any, Callable[..., Any]]:
    """Return the ``custom_translation_table`` for the operators that keep a form of their own."""
    own = {
        overload_of(choice.operator): standard(choice.operator, choice.how, opset)
        if choice.form == "standard"
        else _own_node(choice.operator)
        for choice in choices
    }
    return {torch.sym_sqrt: _square_root, **own}


def _square_root(size: Any) -> Any:
    """Translate ``math.sqrt`` of a symbolic size, which the exporter cannot translate."""
    return add_node("", "Sqrt", [size], [], 1, None)[0]


def _own_node(operator: Operator) -> Callable[..., Any]:
    layout = NodeLayout(operator.signature)

    def run(*args: Any, **kwargs: Any) -> Any:
        arguments = operator.arguments(args, kwargs)
        outputs = add_node(
            operator.signature.namespace,
            operator.signature.name,
            layout.inputs(arguments),
            typed_attributes(layout, arguments),
            layout.output_count,
            DOMAIN_VERSION,
        )
        return outputs[0] if len(outputs) == 1 else outputs

    return run


def export(model: Model, lowered: Lowered, opset: int) -> Any:
    """Translate a lowered program, and return the ``onnx_ir.Model``.

    Raises:
        ExportError: the exporter cannot translate something; the message is the exporter's.
    """
    table = translation_table(lowered.kept, opset)
    with quietly(), library_parsed_once(), only_no_ops(), numbers_in_full():
        try:
            program = torch.onnx.export(
                lowered.program,
                dynamo=True,
                verbose=False,
                opset_version=opset,
                custom_translation_table=table,
                input_names=[spec.name for spec in model.inputs],
                output_names=[spec.name for spec in model.outputs],
            )
        except Exception as error:
            raise refusal(error, lowered.program) from error
    assert program is not None
    return program.model


def knows(overload: OpOverload) -> bool:
    """Return whether the exporter itself can translate `overload`."""
    with quietly(), library_parsed_once():
        return torch_onnx.exports_by_dynamo(overload)


_NODE = re.compile(r"%(\w+) : .*?\[target=(?:torch\.ops\.)?([\w.]+)\]\(args = (.*?), kwargs = ")
_LINE = re.compile(r'File "(.+?)", line (\d+), in \S+\n\s*(.+)')


def refusal(error: BaseException, program: ExportedProgram | None = None) -> ExportError:
    """Convert an exporter's exception to an error: opsmith's own, or the deepest cause's message.

    Args:
        error: what the exporter raised.
        program: the program that was translated; its nodes hold the lines of code that they come
            from.
    """
    causes = [error]
    while causes[-1].__cause__ is not None:
        causes.append(causes[-1].__cause__)
    for cause in causes:
        if isinstance(cause, FormError):
            return FormError(cause.operator, cause.why)
        if isinstance(cause, ExportError):
            return ExportError(str(cause))
    text = str(causes[-1]).strip() or type(causes[-1]).__name__
    # The node is named further out in the chain of causes than the problem.
    found = next((match for cause in reversed(causes) if (match := _NODE.search(str(cause)))), None)
    if found is None:
        return ExportError(f"torch.onnx could not translate the model: {text}")
    name, target, arguments = found.groups()
    nodes = program.graph.nodes if program is not None else ()
    own = [node for node in nodes if node.name == name]
    if any(torch.Tag.nondeterministic_seeded in getattr(node.target, "tags", ()) for node in own):
        text = "it draws random numbers; have the model take them as an input"
    traces = [node.meta.get("stack_trace") or "" for node in own]
    lines = _LINE.findall("".join(traces))
    place = f"\n  at {lines[-1][0]}:{lines[-1][1]}: {lines[-1][2]}" if lines else ""
    return ExportError(f"torch.onnx could not translate {target}{arguments}: {text}{place}")


@contextlib.contextmanager
def quietly() -> Iterator[None]:
    """Silence the exporter's log and warnings: its exceptions contain the important parts."""
    with silenced("torch.onnx", "onnxscript", "onnx_ir"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


# The exporter's optimizer drops ``x + 0`` and ``x * 1``, but ``x + 1e-8`` and ``x * 1.000001`` too,
# since onnxscript's patterns compare constants with a relative tolerance of 1e-5 and an absolute
# one of 1e-8. Without an epsilon that prevents a division by zero, the model returns infinity.

#: Less than the distance between neighbouring floats, and more than the rounding error of a number
#: such as 1/6.
_CLOSE = 1e-7


def _close(a: float, b: float, **tolerances: float) -> bool:
    del tolerances
    return a == b if float(b).is_integer() else math.isclose(a, b, rel_tol=_CLOSE)


#: A block in which the optimizer drops only operations without effect.
only_no_ops = constants_compared_by(_close)
