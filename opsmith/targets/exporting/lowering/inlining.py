"""Turn a model into a program that a runtime supports: choose forms, and inline references.

Inlining is a decomposition: PyTorch replaces calls of the operator by the operations of its
reference. References may mutate tensors that they created, so each is functionalized in the
process.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.export import ExportedProgram
from torch.fx import Node
from torch.overrides import TorchFunctionMode

from opsmith.compat import torch_pytree as pytree
from opsmith.compat.torch_ops import OpOverload
from opsmith.compat.torch_tracing import functionalized, is_functional, unseen_by_traces
from opsmith.errors import ExportError
from opsmith.kernels import HOST
from opsmith.operators import Operator
from opsmith.targets.exporting.artifact import SizeCondition
from opsmith.targets.exporting.lowering.assumptions import Assumptions, raised_at
from opsmith.targets.exporting.lowering.choice import INLINE, Choice, Chooser
from opsmith.targets.exporting.lowering.functional import (
    CallsTwins,
    functional,
    operator_of_twin,
    twin,
    without_mutation,
)
from opsmith.targets.exporting.model import Model, operator_behind
from opsmith.targets.exporting.tracing import kept_sizes
from opsmith.untyped import Untyped, Value


@dataclass(frozen=True)
class Lowered:
    """A program without the custom operators that were inlined.

    Attributes:
        program: the program, in which inlined operators are replaced.
        choices: the form of every operator that the model calls, with the number of its calls.
        conditions: what the declarations of the inlined operators require of the inputs' sizes.
    """

    program: ExportedProgram
    choices: tuple[tuple[Choice, int], ...]
    conditions: tuple[SizeCondition, ...] = ()

    @property
    def kept(self) -> tuple[Choice, ...]:
        """Return the choices of the operators that the program still calls."""
        return tuple(choice for choice, _ in self.choices if choice.form != INLINE)


def overload_of(operator: Operator) -> OpOverload:
    """Return the overload that calls `operator` in a functional program: its twin if it mutates."""
    return twin(operator) if operator.signature.mutated else operator.overload


Decompositions = Mapping[OpOverload, Callable[..., Value]]
"""Maps overloads to functions that use other operators, or return `NotImplemented`."""


def lower(
    model: Model, chooser: Chooser, *, pure: bool, decompositions: Decompositions | None = None
) -> Lowered:
    """Choose forms, and inline the operators with the inline form.

    Args:
        chooser: chooses the forms.
        pure: whether the runtime's values are immutable. Operators that mutate and keep a form of
            their own are then called through their functional twins.
        decompositions: decompositions of PyTorch's operators, where the runtime is `pure`.

    Raises:
        ExportError: no form of an operator works; or a reference branches on sizes that may change.
            The message names the operator and the line of its reference.
    """
    choices: dict[Operator, tuple[Choice, int]] = {}
    assumptions = Assumptions(model)
    own = model.operators(adopted=True)
    calls = own
    # Each round chooses a form for a further operator, or excludes one form.
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
            return Lowered(program, tuple(choices.values()), assumptions.declared)
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
    # PyTorch would decompose any operator that is composed of others, even one that keeps its form.
    table = {target: made for target, made in given if operator_behind(target) is None}
    for operator in operators:
        reference = operator.reference
        if operator.signature.mutated:
            reference = functional(operator, reference)
        table[overload_of(operator)] = _traceable(operator, reference, twins, assumptions)
    decomposed: ExportedProgram = program.run_decompositions(table)
    return decomposed


def _traceable(
    operator: Operator,
    function: Callable[..., object],
    twins: CallsTwins,
    assumptions: Assumptions | None,
) -> Callable[..., object]:
    """Wrap `function` for use as a decomposition, even if it mutates tensors that it created."""

    def traced(*args: object, **kwargs: object) -> object:
        with twins, MakesConstants(), kept_sizes():
            return function(*args, **kwargs)

    def run(*args: object, **kwargs: object) -> object:
        noting = contextlib.nullcontext() if assumptions is None else assumptions.of(operator)
        with noting:
            if assumptions is not None:
                assumptions.declare(operator, operator.arguments(args, kwargs))
            returned = functionalized(traced)(*args, **kwargs)
        # A reference may return any sequence; the schema requires a tuple.
        return tuple(returned) if isinstance(returned, list) else returned

    return run


def _exclude_culprit(
    program: ExportedProgram,
    operators: Sequence[Operator],
    pure: bool,
    chooser: Chooser,
    error: Exception,
) -> None:
    """Find the operator whose reference cannot be traced, and exclude its inline form."""
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
    """Return the type and the first line of an error, without the node that PyTorch names."""
    kind = type(error).__name__
    first = next(iter(str(error).strip().splitlines()), "")
    # PyTorch appends the node, or gives only the node if the error has no text.
    if not first or first.startswith("While executing %"):
        return kind
    return f"{kind}: {first.rstrip('.')}"


#: Largest number of elements of a constant; each may become an operation.
_MOST = 1024
_MAKERS = (torch.tensor, torch.as_tensor, torch.asarray)


class MakesConstants(TorchFunctionMode):
    """Builds ``torch.tensor([2])`` in a reference, and tensors from outside it, by operations."""

    def __torch_function__(
        self, func: Untyped, types: object, args: Value = (), kwargs: Value = None
    ) -> Value:
        kwargs = kwargs or {}
        made = None
        if func in _MAKERS and args:
            made = _made(args[0], kwargs.get("dtype"), kwargs.get("device"))
        elif func is Tensor.new_tensor and len(args) > 1:
            like = {"dtype": args[0].dtype, "device": args[0].device, **kwargs}
            made = _made(args[1], like["dtype"], like["device"])
        if made is not None:
            return made
        args, kwargs = pytree.tree_map(_rebuilt, (tuple(args), dict(kwargs)))
        return func(*args, **kwargs)


def _made(data: object, dtype: torch.dtype | None, device: object) -> Tensor | None:
    """Return a tensor of Python numbers, or `None` if `data` contains anything else."""
    leaves = pytree.tree_leaves(data, is_leaf=lambda item: not isinstance(item, list | tuple))
    if not all(isinstance(leaf, bool | int | float | complex) for leaf in leaves):
        return None
    with unseen_by_traces():
        value = torch.tensor(data, dtype=dtype, device=HOST)
    return _of(value, device or torch.get_default_device())


def _rebuilt(value: object) -> object:
    # Traced tensors are instances of subclasses.
    if type(value) is not Tensor or is_functional(value):
        return value
    return _of(value, value.device)


def _of(value: Tensor, device: Untyped) -> Tensor:
    """Return the numbers of `value` as operations that build it on `device`."""
    if value.numel() > _MOST:
        raise ExportError(
            f"a reference uses a constant of {value.numel()} elements, and an inlined reference "
            f"may have at most {_MOST}. Pass the constant as an argument."
        )
    with unseen_by_traces():
        numbers: Sequence[complex] = value.detach().cpu().flatten().tolist()
    shape, dtype = value.shape, value.dtype
    # Compare texts, since 0.0 == -0.0.
    if len(set(map(repr, numbers))) <= 1:
        return torch.full(shape, numbers[0] if numbers else 0, dtype=dtype, device=device)
    single = [torch.full((), number, dtype=dtype, device=device) for number in numbers]
    return torch.stack(single).reshape(shape)
