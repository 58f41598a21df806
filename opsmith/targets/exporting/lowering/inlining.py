"""From a model to a program that a runtime can take: forms chosen, references inlined.

Inlining is a decomposition: PyTorch takes calls of the operator apart into what its reference does.
References may mutate what they made themselves, so each is functionalized on the way.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from torch.export import ExportedProgram
from torch.fx import Node

from opsmith.compat.torch_tracing import functionalized
from opsmith.errors import ExportError
from opsmith.operators import Operator
from opsmith.targets.exporting.lowering.assumptions import Assumptions, raised_at
from opsmith.targets.exporting.lowering.choice import INLINE, Choice, Chooser
from opsmith.targets.exporting.lowering.constants import MakesConstants
from opsmith.targets.exporting.lowering.functional import (
    CallsTwins,
    functional,
    operator_of_twin,
    twin,
    without_mutation,
)
from opsmith.targets.exporting.model import Model, operator_behind
from opsmith.targets.exporting.symbolic_sizes import kept_sizes


@dataclass(frozen=True)
class Lowered:
    """A program whose custom operators are those that keep a form of their own.

    Attributes:
        program: inlined operators gone.
        choices: every operator that the model calls, by its form, with the number of its calls.
    """

    program: ExportedProgram
    choices: tuple[tuple[Choice, int], ...]

    @property
    def kept(self) -> tuple[Choice, ...]:
        """The operators that the program still calls."""
        return tuple(choice for choice, _ in self.choices if choice.form != INLINE)


def overload_of(operator: Operator) -> Any:
    """What a functional program calls for `operator`: its functional twin if it mutates."""
    return twin(operator) if operator.signature.mutated else operator.overload


Decompositions = Mapping[Any, Callable[..., Any]]
"""By overload what does the same in other operators, or gives `NotImplemented`."""


def lower(
    model: Model, chooser: Chooser, *, pure: bool, decompositions: Decompositions | None = None
) -> Lowered:
    """Choose forms, and inline what is to be inlined.

    Args:
        model: what is exported.
        chooser: chooses.
        pure: whether the runtime has no values that change. Operators that mutate and keep a form
            of their own are then called by their functional twins.
        decompositions: of PyTorch's operators, where the runtime is `pure`.

    Raises:
        ExportError: an operator has no form that works; or a reference branches on sizes that may
            change. The operator is named, and the line of its reference.
    """
    choices: dict[Operator, tuple[Choice, int]] = {}
    assumptions = Assumptions(model)
    own = model.operators(adopted=True)
    calls = own
    # Each round chooses for a further operator, or takes a form from one.
    while True:
        for operator, nodes in calls.items():
            if operator not in choices:
                choices[operator] = chooser.choose(operator, nodes), len(nodes)
        inlined = [operator for operator, (choice, _) in choices.items() if choice.form == INLINE]
        program = without_mutation(model.program, own if pure else inlined)
        try:
            if pure or inlined:
                program = _decomposed(program, inlined, pure, assumptions, decompositions)
        except Exception as error:
            _exclude_culprit(program, inlined, pure, chooser, error)
            choices.clear()
            assumptions.forget()
            continue
        # A reference may call further operators.
        calls = _calls(replace(model, program=program))
        if all(operator in choices for operator in calls):
            assumptions.require_sizes(inlined)
            assumptions.require_no_branches(inlined)
            chooser.require_known([operator.name for operator in choices])
            return Lowered(program, tuple(choices.values()))
        calls = {**own, **calls}


def _calls(model: Model) -> dict[Operator, list[Node]]:
    found = model.operators(adopted=True)
    for node in model.calls():
        operator = operator_of_twin(node.target)
        if operator is not None:
            found.setdefault(operator, []).append(node)
    return found


def _decomposed(
    program: ExportedProgram,
    operators: Sequence[Operator],
    pure: bool,
    assumptions: Assumptions | None = None,
    decompositions: Decompositions | None = None,
) -> ExportedProgram:
    twins = CallsTwins(None if pure else operators)
    given = (decompositions or {}).items()
    # PyTorch would take apart whatever is made of other operators, also what keeps a form.
    table = {target: made for target, made in given if operator_behind(target) is None}
    for operator in operators:
        reference = operator.reference
        if operator.signature.mutated:
            reference = _results(functional(operator, reference))
        table[overload_of(operator)] = _traceable(operator, reference, twins, assumptions)
    return program.run_decompositions(table)


def _results(function: Callable[..., Any]) -> Callable[..., Any]:
    def run(*args: Any, **kwargs: Any) -> Any:
        results = function(*args, **kwargs)
        return results[0] if len(results) == 1 else results

    return run


def _traceable(
    operator: Operator,
    function: Callable[..., Any],
    twins: CallsTwins,
    assumptions: Assumptions | None,
) -> Callable[..., Any]:
    """`function` for use as a decomposition, though it may mutate tensors that it made."""

    def traced(*args: Any, **kwargs: Any) -> Any:
        with twins, MakesConstants(), kept_sizes():
            return function(*args, **kwargs)

    def run(*args: Any, **kwargs: Any) -> Any:
        noting = contextlib.nullcontext() if assumptions is None else assumptions.of(operator)
        with noting:
            returned = functionalized(traced)(*args, **kwargs)
        # Results may come as any sequence; the schema says a tuple.
        return tuple(returned) if isinstance(returned, list) else returned

    return run


def _exclude_culprit(
    program: ExportedProgram,
    operators: Sequence[Operator],
    pure: bool,
    chooser: Chooser,
    error: Exception,
) -> None:
    """Find the operator whose reference cannot be traced, and take the inline form from it.

    Raises:
        ExportError: inline is what was asked for, or the fault is not with one operator.
    """
    for operator in operators:
        try:
            _decomposed(program, [operator], pure)
        except Exception as reason:
            place = raised_at(reason)
            where = f"\n  at {place}\n" if place else " "
            chooser.exclude(
                operator,
                INLINE,
                "its reference cannot be taken apart into PyTorch's operators, as the inline form "
                f"needs: {_words(reason)}.{where}"
                "Write the reference in plain PyTorch (torch functions, no NumPy, no .item()), or "
                "give it a C++ kernel for the library form.",
            )
            return
    if isinstance(error, RecursionError):
        names = ", ".join(operator.name for operator in operators)
        raise ExportError(f"{names}: some of their references call each other without an end")
    raise ExportError(f"PyTorch could not decompose the model:\n{error}") from error


def _words(error: Exception) -> str:
    """What an error is and its first line, without that of the graph it was raised in."""
    kind = type(error).__name__
    first = next(iter(str(error).strip().splitlines()), "")
    # PyTorch appends the node, or says it alone where the error has no words.
    if not first or first.startswith("While executing %"):
        return kind
    return f"{kind}: {first.rstrip('.')}"
