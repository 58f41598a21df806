"""What `opsmith check` is to run of a target: the routes by which an operator reaches its runtime.

A target knows the routes; the checks draw cases, know what is right, and compare.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from opsmith.operators import Operator
from opsmith.operators.core.arguments import flatten
from opsmith.targets.exporting.loaded_artifact import LoadedModel, LoadedOperators
from opsmith.targets.exporting.protocol import Route


def _no_options(operator: Operator) -> Mapping[str, Any]:
    del operator
    return {}


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
