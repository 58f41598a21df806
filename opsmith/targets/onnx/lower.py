"""From a model to a program that an ONNX exporter can translate: forms chosen, references inlined.

Inlining is a decomposition: PyTorch takes calls of the operator apart into what its reference does.
References may mutate what they made themselves, so each is functionalized on the way.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch.export import ExportedProgram
from torch.export.graph_signature import OutputKind
from torch.fx import Node

from opsmith.errors import ExportError
from opsmith.operators import Operator
from opsmith.targets.model import Model
from opsmith.targets.onnx.forms import Choice, Chooser
from opsmith.targets.onnx.functional import functional, twin, without_mutation

_ROUNDS = 16


@dataclass(frozen=True)
class Lowered:
    """A program whose custom operators are those that keep a node of their own, or translate.

    Attributes:
        program: functional, inlined operators gone.
        choices: every operator that the model calls, by its form, with the number of its calls.
    """

    program: ExportedProgram
    choices: tuple[tuple[Choice, int], ...]

    @property
    def kept(self) -> tuple[Choice, ...]:
        """The operators that the program still calls."""
        return tuple(choice for choice, _ in self.choices if choice.form != "inline")


def overload_of(operator: Operator) -> Any:
    """What the lowered program calls for `operator`: its functional twin if it mutates."""
    return twin(operator) if operator.signature.mutated else operator._opoverload


def lower(model: Model, chooser: Chooser) -> Lowered:
    """Choose forms, and inline what is to be inlined.

    Raises:
        ExportError: an operator has no form that works; the model keeps state; or it writes into
            its inputs. Each is named.
    """
    choices: dict[Operator, tuple[Choice, int]] = {}
    asked, guards = model.shapes(), len(model.guards())
    pure = without_mutation(model)
    calls = model.operators(adopted=True)
    for _ in range(_ROUNDS):
        for operator, nodes in calls.items():
            if operator not in choices:
                choices[operator] = chooser.choose(operator, nodes), len(nodes)
        inlined = [operator for operator, (choice, _) in choices.items() if choice.form == "inline"]
        try:
            program = _decomposed(pure, inlined)
        except Exception as error:
            _exclude_culprit(pure, inlined, chooser, error)
            choices.clear()
            continue
        # A reference may call further operators.
        calls = _calls(replace(model, program=program))
        if all(operator in choices for operator in calls):
            _require_stateless(program)
            _require_sizes(asked, model, inlined)
            _require_no_branches(model.guards()[guards:], inlined)
            return Lowered(program, tuple(choices.values()))
        calls = {**model.operators(adopted=True), **calls}
    raise ExportError("references call each other without an end")


def _calls(model: Model) -> dict[Operator, list[Node]]:
    return model.operators(adopted=True)


def _decomposed(program: ExportedProgram, operators: list[Operator]) -> ExportedProgram:
    table: dict[Any, Callable[..., Any]] = {}
    for operator in operators:
        reference = operator.reference
        if operator.signature.mutated:
            reference = _results(functional(operator, reference))
        table[overload_of(operator)] = functionalized(reference)
    return program.run_decompositions(table)


def _results(function: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        results = function(*args, **kwargs)
        return results[0] if len(results) == 1 else results

    return run


def functionalized(function: Callable[..., Any]) -> Callable[..., Any]:
    """`function` for use as a decomposition, though it may mutate tensors that it made."""
    from torch._subclasses.functional_tensor import FunctionalTensorMode, dispatch_functionalize

    def run(*args: Any, **kwargs: Any) -> Any:
        returned = dispatch_functionalize(function, FunctionalTensorMode())(*args, **kwargs)
        # Results may come as any sequence; the schema says a tuple.
        return tuple(returned) if isinstance(returned, list) else returned

    return run


def _exclude_culprit(
    program: ExportedProgram, operators: list[Operator], chooser: Chooser, error: Exception
) -> None:
    """Find the operator whose reference cannot be traced, and take the inline form from it.

    Raises:
        ExportError: inline is what was asked for, or the fault is not with one operator.
    """
    for operator in operators:
        try:
            _decomposed(program, [operator])
        except Exception as reason:
            first = str(reason).strip().splitlines()
            why = f"{type(reason).__name__}: {first[0].rstrip('.')}" if first else repr(reason)
            chooser.exclude(
                operator,
                "inline",
                f"{operator.name}: its reference cannot be taken apart into PyTorch's operators, "
                f"as the inline form needs: {why}. Write the reference in plain PyTorch "
                "(torch functions, no NumPy, no .item()), or give it a C++ kernel for the library "
                "form.",
            )
            return
    raise ExportError(f"PyTorch could not decompose the model:\n{error}") from error


def _require_stateless(program: ExportedProgram) -> None:
    for spec in program.graph_signature.output_specs:
        if spec.kind is OutputKind.USER_INPUT_MUTATION:
            raise ExportError(
                f"the model writes into its input {spec.target!r}, and the inputs of an ONNX model "
                "cannot change. Return the new value instead."
            )
        if spec.kind is OutputKind.BUFFER_MUTATION:
            raise ExportError(
                f"the model changes its buffer {spec.target!r} when it runs, and an ONNX model has "
                "no state. Pass the value as an input, and return the new one."
            )


def _require_sizes(
    asked: Mapping[str, tuple[int | str, ...]], model: Model, inlined: list[Operator]
) -> None:
    """Refuse to inline references where a branch fixes a size that was left open.

    Raises:
        ExportError: naming the input, and what the example should be.
    """
    for name, shape in model.shapes().items():
        if shape != asked[name]:
            operators = ", ".join(operator.name for operator in inlined)
            raise ExportError(
                f"{operators}: with the reference inlined the input {name!r} would be "
                f"{_shown(shape)}, and {_shown(asked[name])} was asked for: a reference branches "
                "on sizes, and the example's decide. Give an example whose sizes differ where they "
                "may, or use the library form."
            )


def _require_no_branches(guards: Sequence[str], inlined: list[Operator]) -> None:
    """Refuse to inline references that compare sizes, since the other branch would be gone.

    Raises:
        ExportError: saying what was compared.
    """
    compared = [guard for guard in guards if _COMPARISON.fullmatch(guard)]
    if compared:
        operators = ", ".join(operator.name for operator in inlined)
        raise ExportError(
            f"{operators}: its reference branches on sizes, and inlined it would be right for "
            f"{' and '.join(compared)} alone, as the example is. Export with sizes that do not "
            "change, or that are bounded (Dim(…, min=…, max=…)), use the library form, or write "
            "the reference without the branch."
        )


# Of a size with another, or with a number: PyTorch itself asks everywhere whether sizes are 0 or 1.
_SIZE = r"[A-Za-z_]\w*"
_MOVED = rf"{_SIZE}( [+-] \d+)?"
_COMPARISON = re.compile(
    rf"{_MOVED} (<|<=|>|>=|!=) {_MOVED}"
    rf"|{_SIZE} (<|<=|>|>=|!=) ([3-9]|\d\d+)"
    rf"|{_SIZE} [+-] \d+ (<|<=|>|>=) 0"
)


def _shown(shape: tuple[int | str, ...]) -> str:
    return f"({', '.join(map(str, shape))})"


def require_known_operators(model: Model, known: Callable[[torch._ops.OpOverload], bool]) -> None:
    """Refuse custom operators that neither opsmith nor the exporter can translate.

    Raises:
        ExportError: naming them.
    """
    for name, nodes in model.foreign_operators().items():
        if not any(known(node.target) for node in nodes):  # type: ignore[arg-type]
            short = name.rpartition("::")[2]
            raise ExportError(
                f"{name}: opsmith knows nothing of this operator, and the exporter cannot "
                f"translate it. Say what it does: {short} = opsmith.adopt({name!r}) on a function "
                f"that computes the same in PyTorch, then perhaps {short}.register_onnx(…)."
            )
