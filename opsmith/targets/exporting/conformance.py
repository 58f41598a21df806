"""Define the routes by which an operator reaches a target's runtime, for `opsmith check` to run.

A target provides the routes; the checks draw the cases, compute the expected results and compare.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from torch import Tensor

from opsmith.operators import Operator
from opsmith.operators.core.arguments import flatten
from opsmith.targets.exporting.loaded_artifact import LoadedModel, LoadedOperators
from opsmith.targets.exporting.protocol import Route
from opsmith.untyped import Arguments, Value


def call_model(model: LoadedModel, arguments: Sequence[object]) -> Value:
    """Call a loaded model with the arguments of the exported model."""
    return model(*arguments)


def call_operator(
    loaded: LoadedOperators, operator: Operator, arguments: Arguments
) -> Sequence[Tensor]:
    """Call a loaded operator with PyTorch tensors and return its results."""
    return loaded.runner.run(operator.name, arguments)


@dataclass(frozen=True)
class OwnCall:
    """The call of a loaded operator in its runtime's own types.

    Attributes:
        function: the runtime's function; accepts the result of `taken` as keyword arguments.
        taken: converts PyTorch's arguments by name to the runtime's.
        given: converts what `function` returned, and its arguments, to every result, followed by
            the new contents of arguments that the operator writes into.
    """

    function: Callable[..., Value]
    taken: Callable[[Arguments], Arguments]
    given: Callable[[Value, Arguments], list[Tensor]]


def own_call(loaded: LoadedOperators, operator: Operator) -> OwnCall:
    """Return the call of a function that accepts PyTorch tensors and writes into them."""
    return OwnCall(
        loaded[operator.name],
        lambda arguments: arguments,
        lambda returned, arguments: flatten(operator.signature, returned, arguments),
    )


@dataclass(frozen=True, kw_only=True)
class ModelProof(Route):
    """A route through an exported model that calls the operator once.

    Attributes:
        run: calls the model with the operator's arguments.
        functional: whether the runtime cannot write into inputs, so that new contents are results.
        may_refuse: whether a refused export is no fault of the operator.
        may_fix: whether the model is exported with fixed sizes where an export with sizes that
            may change is refused; the refusal is then no fault of the operator.
    """

    run: Callable[[LoadedModel, Sequence[Value]], Value] = call_model
    functional: bool = False
    may_refuse: bool = False
    may_fix: bool = False


@dataclass(frozen=True, kw_only=True)
class OperatorProof(Route):
    """A route that exports the operator as such and loads it: one export for all cases and dtypes.

    Attributes:
        run: calls the loaded operator with arguments by name; returns the same as
            `OperatorRunner.run`.
        own_call: returns the call to be timed, which excludes the conversion of tensors in `run`.
    """

    run: Callable[[LoadedOperators, Operator, Arguments], Sequence[Tensor]] = call_operator
    own_call: Callable[[LoadedOperators, Operator], OwnCall] = own_call


@dataclass(frozen=True, kw_only=True)
class GradientProof(Route):
    """A route through the derivative of the operator, exported as such and loaded.

    Attributes:
        differentiate: accepts the loaded operator, arguments by name and a gradient for each
            differentiable result; returns those of the tensors that require one, in order.
    """

    differentiate: Callable[
        [LoadedOperators, Operator, Arguments, Sequence[Tensor]], Sequence[Tensor]
    ]


@dataclass(frozen=True, kw_only=True)
class DirectProof(Route):
    """A route that calls the operator's library without an export: quick, so in every dtype.

    Attributes:
        opened: registers the operator with the runtime; returns a function that runs it with
            arguments by name and returns its results, then the new contents of arguments that it
            writes into.
    """

    opened: Callable[[Operator], Callable[[Arguments], list[Tensor]]]
