"""Find the sizes that declarations of inlined operators require of a model.

A kernel compares a call with the declaration; an inlined reference does not, and a compiler relies
on what tracing saw. So the conditions become part of the artifact, in terms of the inputs' sizes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from opsmith.operators import Operator
from opsmith.operators.core.arguments import describe
from opsmith.signature import bind
from opsmith.targets.exporting.artifact import SizeCondition
from opsmith.targets.exporting.model import Model

_RELATIONS = ("==", "!=", "<", "<=", ">", ">=")


def required_sizes(
    model: Model, operator: Operator, arguments: Mapping[str, Any]
) -> Iterator[SizeCondition]:
    """Yield the conditions on symbolic sizes in a call that is being traced.

    Conditions that hold for all sizes are left out, and so are conditions on sizes that only the
    data decides, for which PyTorch's own assertions are part of the program.
    """
    asked: list[Any] = []
    signature = operator.signature
    bind(signature, describe(arguments, signature), lambda holds, message: asked.append(holds))
    for holds in asked:
        expression: Any = holds.node.expr if isinstance(holds, torch.SymBool) else None
        relation = getattr(expression, "rel_op", None)
        if relation not in _RELATIONS:
            continue
        names = {str(s): model.dim_names.get(str(s), str(s)) for s in expression.free_symbols}
        sides = [_text(side, names) for side in expression.args]
        if "" not in sides and model.dims.keys() >= set(names.values()):
            yield SizeCondition(operator.name, sides[0], relation, sides[1])


_OPERATORS = {
    "Add": " + ",
    "Mul": "*",
    "FloorDiv": " // ",
    "CleanDiv": " // ",
    "Mod": " % ",
    "PythonMod": " % ",
}


def _text(expression: Any, names: Mapping[str, str], *, inner: bool = False) -> str:
    """Return an expression of SymPy as `signature.sizes.expressions` reads it; empty if none."""
    kind, arguments = type(expression).__name__, expression.args
    if expression.is_Symbol:
        return names[str(expression)]
    if expression.is_Integer:
        return f"({expression})" if inner and expression < 0 else str(expression)
    if kind == "Pow" and arguments[1].is_Integer and arguments[1] > 0:
        kind, arguments = "Mul", [arguments[0]] * int(arguments[1])
    if kind == "Add":
        arguments = sorted(arguments, key=lambda one: one.is_Integer)
    texts = [_text(one, names, inner=kind in _OPERATORS) for one in arguments]
    if "" in texts:
        return ""
    if kind in ("Max", "Min"):
        return f"{kind.lower()}({', '.join(texts)})"
    text = _OPERATORS[kind].join(texts) if kind in _OPERATORS else ""
    return f"({text})" if inner and text else text
