"""Models that call an operator, and the dynamic shapes to export them with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from opsmith.operators import Operator
from opsmith.operators.core.arguments import flatten, map_tensors
from opsmith.signature import Signature, TensorType
from opsmith.signature.sizes import expressions
from opsmith.signature.sizes.shapes import Fixed


class OneCall(nn.Module):
    """A model that calls an operator once.

    Args:
        names: the arguments' names, in the order of the model's inputs.
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
    """A model that calls an operator once, on copies of the arguments that it writes into.

    It returns the new contents of these arguments after the results.
    """

    def forward(self, *values: Any) -> Any:
        """Call the operator on copies of the arguments that it writes into."""
        arguments = dict(zip(self._names, values, strict=True))
        signature = self._operator.signature
        for parameter in signature.mutated:
            arguments[parameter.name] = map_tensors(arguments[parameter.name], Tensor.clone)
        returned = super().forward(*arguments.values())
        return tuple(flatten(signature, returned, arguments))


class SeveralCalls(nn.Module):
    """A model that makes several calls, each with arguments of its own.

    Args:
        calls: models that make one call each.
    """

    def __init__(self, calls: Sequence[nn.Module]) -> None:
        super().__init__()
        self._calls = nn.ModuleList(calls)

    def forward(self, *groups: Sequence[Any]) -> Any:
        """Make the calls, and return the result of each."""
        return tuple(call(*group) for call, group in zip(self._calls, groups, strict=True))


def dynamic_shapes(signature: Signature, arguments: Mapping[str, Any]) -> list[Any]:
    """Return ``dynamic_shapes`` for a call in which every open size may change."""
    return [dynamic_shape(signature, name, value) for name, value in arguments.items()]


def fixed_shape(value: Any) -> Any:
    """Return the entry of ``dynamic_shapes`` for an argument whose sizes stay fixed."""
    return type(value)([None] * len(value)) if isinstance(value, list | tuple) else None


def dynamic_shape(signature: Signature, name: str, value: Any) -> Any:
    """Return the entry of ``dynamic_shapes`` for an argument whose open sizes may all change."""
    type_ = signature.by_name[name].tensor_type
    if type_ is None or value is None:
        return fixed_shape(value)
    told = signature.told_dims
    if isinstance(value, Tensor):
        return _dynamic_dims(type_, value, told)
    return [_dynamic_dims(type_, item, told) for item in value]


def _dynamic_dims(type_: TensorType, tensor: Tensor, told: frozenset[str]) -> dict[int, Any]:
    if type_.shape is None:
        return dict.fromkeys(range(tensor.dim()), torch.export.Dim.AUTO)
    found: dict[int, Any] = dict.fromkeys(range(tensor.dim()), torch.export.Dim.DYNAMIC)
    for axis, dim in type_.shape.axes():
        if isinstance(dim, Fixed):
            names = expressions.names(dim.expression)
            if not names:
                # A size computed from scalar arguments alone is a constant in the exported graph.
                del found[axis % tensor.dim()]
            elif names & told:
                found[axis % tensor.dim()] = torch.export.Dim.AUTO
    return found
