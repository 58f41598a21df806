"""What `opsmith check` is to run of a target: the routes by which an operator reaches its runtime.

A target knows the routes; the checks draw cases, know what is right, and compare.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor

from opsmith.operators import Operator
from opsmith.operators.arguments import flatten
from opsmith.operators.kernel import Kernel
from opsmith.targets.loaded import LoadedModel, LoadedOperators


def _none(operator: Operator, kernel: Kernel) -> str | None:
    del operator, kernel
    return None


def _no_options(operator: Operator) -> Mapping[str, Any]:
    del operator
    return {}


def _kernel(operator: Operator) -> str:
    del operator
    return ""


def call_model(model: LoadedModel, arguments: Sequence[Any]) -> Any:
    """Call a loaded model as the model was called."""
    return model(*arguments)


def call_operator(
    loaded: LoadedOperators, operator: Operator, arguments: Mapping[str, Any]
) -> Sequence[Tensor]:
    """Call a loaded operator with PyTorch's tensors."""
    return loaded.runner.run(operator.name, arguments)


def _nothing_lost(loaded: LoadedOperators, operator: Operator) -> str | None:
    del loaded, operator
    return None


@dataclass(frozen=True)
class OwnCall:
    """A loaded operator as one calls it in its runtime.

    Attributes:
        function: takes what `taken` gives, by name.
        taken: from PyTorch's arguments by name to the runtime's.
        given: from what `function` returned, and those arguments, to every result, and the new
            contents of arguments that it writes into.
    """

    function: Callable[..., Any]
    taken: Callable[[Mapping[str, Any]], Mapping[str, Any]]
    given: Callable[[Any, Mapping[str, Any]], list[Tensor]]


def own_call(loaded: LoadedOperators, operator: Operator) -> OwnCall:
    """The call of a function that takes PyTorch's tensors, and writes into them."""
    return OwnCall(
        loaded[operator.name],
        lambda arguments: arguments,
        lambda returned, arguments: flatten(operator.signature, returned, arguments),
    )


@dataclass(frozen=True, kw_only=True)
class Route:
    """What all routes of an operator to a runtime have.

    Attributes:
        name: of the check.
        summary: what must hold, as the end of "checks that …".
        what: what runs, for messages.
        obstacle: why an operator with this kernel cannot go this way; `None` if it can.
        lacks: dtypes that the runtime does not have.
        flag: the option of ``opsmith check`` without which it is left out, as it is slow.
        about: what of the author's is wrong where the results are, and where it is written
            (``backward: file.py:7``); empty where that is the kernel.
        timed: what ``opsmith bench`` calls it; empty for a route that it leaves out.
        compiles: whether the runtime compiles every call anew, so that a check makes half as many.
        beside_one: operators of PyTorch, by name (``aten::sigmoid``), whose results the runtime
            rounds as it rounds 1, however small they are, and by up to how many units in the last
            place of 1; those of single precision for coarser dtypes, which runtimes widen.
    """

    name: str
    summary: str
    what: str
    obstacle: Callable[[Operator, Kernel], str | None] = _none
    lacks: frozenset[str] = frozenset()
    flag: str = ""
    about: Callable[[Operator], str] = _kernel
    timed: str = ""
    compiles: bool = False
    beside_one: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class ModelProof(Route):
    """By an exported model that calls the operator once.

    Attributes:
        options: those of the export.
        run: calls the model with the operator's arguments, as the operator is called.
        functional: whether the runtime writes into no input, so that new contents are results.
        may_refuse: whether an export that is refused says nothing against the operator.
        may_fix: whether this is so at least where sizes may change; fixed ones are exported then.
    """

    options: Callable[[Operator], Mapping[str, Any]] = _no_options
    run: Callable[[LoadedModel, Sequence[Any]], Any] = call_model
    functional: bool = False
    may_refuse: bool = False
    may_fix: bool = False


@dataclass(frozen=True, kw_only=True)
class OperatorProof(Route):
    """By the operator exported as such and loaded again: one export for all cases and dtypes.

    Attributes:
        options: those of the export.
        run: calls the loaded operator with arguments by name; gives what `OperatorRunner.run` does.
        own_call: gives the call that is timed, without what `run` makes of tensors.
    """

    options: Callable[[Operator], Mapping[str, Any]] = _no_options
    run: Callable[[LoadedOperators, Operator, Mapping[str, Any]], Sequence[Tensor]] = call_operator
    own_call: Callable[[LoadedOperators, Operator], OwnCall] = own_call


@dataclass(frozen=True, kw_only=True)
class GradientProof(Route):
    """By the derivative of the operator exported as such and loaded again.

    Attributes:
        options: those of the export.
        lost: why the loaded operator has no gradient, where only the export tells; `None` if it
            has one.
        differentiate: takes the loaded operator, arguments by name and a gradient for each result
            that can have one; gives the gradient of each tensor that requires one, in their order.
    """

    options: Callable[[Operator], Mapping[str, Any]] = _no_options
    lost: Callable[[LoadedOperators, Operator], str | None] = _nothing_lost
    differentiate: Callable[
        [LoadedOperators, Operator, Mapping[str, Any], Sequence[Tensor]], Sequence[Tensor]
    ]


@dataclass(frozen=True, kw_only=True)
class DirectProof(Route):
    """By the runtime calling the operator's library without an export: quick, so in every dtype.

    Attributes:
        opened: takes the operator to the runtime; gives what runs it with arguments by name and
            returns its results, then the new contents of arguments that it writes into.
    """

    opened: Callable[[Operator], Callable[[Mapping[str, Any]], list[Tensor]]]
