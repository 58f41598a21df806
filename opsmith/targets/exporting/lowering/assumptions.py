"""Record the assumptions about sizes that tracing a reference makes, and the lines that make them.

When a reference is inlined, the example's sizes decide its branches on sizes. PyTorch records the
decisions as guards; the line that branches is known only at the moment it does.
"""

from __future__ import annotations

import contextlib
import linecache
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType, TracebackType

import torch

from opsmith.errors import ExportError
from opsmith.operators import Operator
from opsmith.operators.core.arguments import describe
from opsmith.signature import bind
from opsmith.targets.exporting.artifact import SizeCondition
from opsmith.targets.exporting.model import Model
from opsmith.untyped import Arguments, Untyped

_NOT_THE_USERS = (Path(torch.__file__).parent, Path(__file__).parents[3])


@dataclass(frozen=True)
class Assumption:
    """An assumption of tracing about sizes.

    Attributes:
        guard: PyTorch's guard.
        operator: the operator whose reference was traced.
        place: the line that branches, such as ``ops.py:12: if len(x) > 3:``; empty if unknown.
    """

    guard: Untyped
    operator: Operator
    place: str


class Assumptions:
    """Collects the assumptions of references about the sizes of `model` while they are traced."""

    def __init__(self, model: Model) -> None:
        self._model = model
        self._asked = model.shapes()
        self._found: list[Assumption] = []
        self._declared: dict[SizeCondition, None] = {}

    @property
    def declared(self) -> tuple[SizeCondition, ...]:
        """Return what the declarations require of the inputs' sizes."""
        return tuple(self._declared)

    def declare(self, operator: Operator, arguments: Arguments) -> None:
        """Note what the declaration of `operator` requires of a call that is being traced."""
        if self._model.shape_environment is not None:
            self._declared.update(dict.fromkeys(required_sizes(self._model, operator, arguments)))

    @contextlib.contextmanager
    def of(self, operator: Operator) -> Iterator[None]:
        """Record the assumptions of the reference of `operator`, which is traced in this block."""
        environment = self._model.shape_environment
        if environment is None:
            yield
            return
        found = self._found

        class Watched(list[Untyped]):
            def append(self, guard: object) -> None:
                super().append(guard)
                found.append(Assumption(guard, operator, _asking(sys._getframe(1))))

        environment.guards = Watched(environment.guards)
        try:
            yield
        finally:
            environment.guards = list(environment.guards)

    def forget(self) -> None:
        """Discard the assumptions, because forms are chosen anew."""
        self._found.clear()
        self._declared.clear()

    def require_sizes(self, inlined: Sequence[Operator]) -> None:
        """Refuse references that fix a dynamic size, or make two dynamic sizes equal."""
        for name, shape in self._model.shapes().items():
            if shape != self._asked[name]:
                equal = [a for a in self._found if str(getattr(a.guard.expr, "rel_op", "")) == "=="]
                raise ExportError(
                    f"{_named(equal, inlined)}: with the reference inlined the input {name!r} "
                    f"would be {_shown(shape)} in place of {_shown(self._asked[name])}: a "
                    f"reference branches on sizes, and the example's sizes decide.{_places(equal)}"
                    "Give an example whose sizes differ where they may, write the reference "
                    "without the branch, or use the library form."
                )

    def require_no_branches(self, inlined: Sequence[Operator]) -> None:
        """Refuse references that compare sizes, since inlining would drop the other branch."""
        texts: Mapping[int, str] = {id(a): self._model.text(a.guard.expr) for a in self._found}
        compared = [a for a in self._found if _COMPARISON.fullmatch(texts[id(a)])]
        if compared:
            said = " and ".join(dict.fromkeys(texts[id(a)] for a in compared))
            raise ExportError(
                f"{_named(compared, inlined)}: its reference branches on sizes, and the graph "
                f"has the branch of the example alone: {said}.{_places(compared)}"
                "Export with sizes that do not change, or that are bounded (Dim(…, min=…, max=…)), "
                "use the library form, or write the reference without the branch."
            )


def raised_at(error: BaseException) -> str:
    """Return the innermost line of user code that an error passed through, or an empty text."""
    found = ""
    trace: TracebackType | None = error.__traceback__
    while trace is not None:
        found = _place(trace.tb_frame, trace.tb_lineno) or found
        trace = trace.tb_next
    return found


# Match comparisons of a size with another size, or with a number from 3 on: PyTorch itself compares
# sizes with 0 and 1 everywhere.
_SIZE = r"[A-Za-z_]\w*"
_MOVED = rf"{_SIZE}( [+-] \d+)?"
_COMPARISON = re.compile(
    rf"{_MOVED} (<|<=|>|>=|!=) {_MOVED}"
    rf"|{_SIZE} (<|<=|>|>=|!=) ([3-9]|\d\d+)"
    rf"|{_SIZE} [+-] \d+ (<|<=|>|>=) 0"
)


def _named(found: Sequence[Assumption], inlined: Sequence[Operator]) -> str:
    guilty = [assumption.operator for assumption in found] or inlined
    return ", ".join(dict.fromkeys(operator.name for operator in guilty))


def _places(found: Sequence[Assumption]) -> str:
    lines = dict.fromkeys(assumption.place for assumption in found if assumption.place)
    return "".join(f"\n  at {line}" for line in lines) + ("\n" if lines else " ")


def _asking(frame: FrameType | None) -> str:
    while frame is not None:
        place = _place(frame, frame.f_lineno)
        if place:
            return place
        frame = frame.f_back
    return ""


def _place(frame: FrameType, line: int) -> str:
    path = Path(frame.f_code.co_filename)
    if not path.is_file() or any(path.is_relative_to(folder) for folder in _NOT_THE_USERS):
        return ""
    return f"{path}:{line}: {linecache.getline(str(path), line).strip()}"


def _shown(shape: tuple[int | str, ...]) -> str:
    return f"({', '.join(map(str, shape))})"


_RELATIONS = ("==", "!=", "<", "<=", ">", ">=")


def required_sizes(
    model: Model, operator: Operator, arguments: Arguments
) -> Iterator[SizeCondition]:
    """Yield the conditions on symbolic sizes in a call that is being traced.

    Conditions that hold for all sizes are left out, and so are conditions on sizes that only the
    data decides, for which PyTorch's own assertions are part of the program.
    """
    asked: list[object] = []
    signature = operator.signature
    bind(signature, describe(arguments, signature), lambda holds, message: asked.append(holds))
    for holds in asked:
        expression: Untyped = holds.node.expr if isinstance(holds, torch.SymBool) else None
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


def _text(expression: Untyped, names: Mapping[str, str], *, inner: bool = False) -> str:
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
