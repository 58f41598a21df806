"""One call of an operator, exported to a target and run there."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from torch import nn

from opsmith import targets
from opsmith.checks.case import Case
from opsmith.checks.catalogue.tracing import _dynamic_shape
from opsmith.checks.trial import Trial
from opsmith.checks.truth import flatten
from opsmith.operators import Operator


class OneCall(nn.Module):
    """A model that calls an operator once.

    Args:
        operator: what it calls.
        names: the arguments' names, in the order in which the model takes them.
    """

    def __init__(self, operator: Operator, names: list[str]) -> None:
        super().__init__()
        self._operator = operator
        self._names = names

    def forward(self, *values: Any) -> Any:
        """Call the operator."""
        arguments = dict(zip(self._names, values, strict=True))
        positional, keywords = self._operator.split(arguments)
        return self._operator(*positional, **keywords)


class PureCall(OneCall):
    """The same, with nothing written into its arguments: new contents come after the results."""

    def forward(self, *values: Any) -> Any:
        """Call the operator on copies of what it writes into."""
        arguments = dict(zip(self._names, values, strict=True))
        signature = self._operator.signature
        for parameter in signature.mutated:
            if arguments[parameter.name] is not None:
                arguments[parameter.name] = arguments[parameter.name].clone()
        returned = super().forward(*arguments.values())
        return tuple(flatten(signature, returned, arguments))


def export_call(
    trial: Trial,
    case: Case,
    target: str,
    out: Path,
    *,
    dynamic: bool,
    call: type[OneCall] = OneCall,
    **options: Any,
) -> targets.LoadedModel:
    """Export a model that makes the call of `case`, and load what was exported.

    Args:
        trial: the check at work.
        case: gives the example.
        target: the runtime.
        out: the folder to make.
        dynamic: whether every size that the declaration leaves open may change.
        call: the model.
        options: the target's.
    """
    arguments = case.make(trial.subject.device)
    shapes = tuple(_dynamic_shape(trial, name, value) for name, value in arguments.items())
    targets.export(
        call(trial.operator, list(arguments)).eval(),
        tuple(arguments.values()),
        target=target,
        out=out,
        dynamic_shapes=(shapes,) if dynamic else None,
        verify=False,
        say=None,
        **options,
    )
    return targets.load(out)


def tensors_of(model: targets.LoadedModel, arguments: Mapping[str, Any]) -> list[torch.Tensor]:
    """The tensors among a call's arguments in the order of the artifact's inputs."""
    leaves = torch.utils._pytree.tree_leaves(list(arguments.values()))
    places = model.artifact.manifest.call.in_leaves
    return [leaf for leaf, place in zip(leaves, places, strict=True) if isinstance(place, int)]
