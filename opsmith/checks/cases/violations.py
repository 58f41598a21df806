"""Values that violate one constraint by as little as possible."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from opsmith.kernels import HOST
from opsmith.signature import Bindings, Column, Order, Parameter, PartStarts, Sum, ValueRange
from opsmith.signature.constraints import range_limits


def violations(
    parameter: Parameter, arguments: Mapping[str, Any], bindings: Bindings
) -> Iterator[tuple[str, Any]]:
    """Yield changed values of an argument that violate a constraint.

    Args:
        parameter: parameter of a tensor, a list of tensors, a scalar or a sequence. For tensors on
            other devices than the CPU, nothing is yielded.
        arguments: valid arguments of a call.
        bindings: the dimensions that the call binds.

    Returns:
        Pairs of a description and a value. A few of the values may be valid after all.
    """
    value = arguments[parameter.name]
    if isinstance(value, Tensor):
        if value.device.type == HOST and value.numel():
            yield from _of_tensor(parameter, value, arguments, bindings)
    elif parameter.is_tensor_list:
        # Change the last tensor, so that a validation that stops early is found.
        filled = [place for place, tensor in enumerate(value or ()) if tensor.numel()]
        for place in filled[-1:]:
            if value[place].device.type == HOST:
                for what, wrong in _of_tensor(parameter, value[place], arguments, bindings):
                    yield what, [*value[:place], wrong, *value[place + 1 :]]
    elif isinstance(value, list | tuple):
        for what, line in _of_line(parameter, list(value), arguments, bindings):
            yield what, line
    elif value is not None:
        for what, (wrong,) in _of_line(parameter, [value], arguments, bindings):
            yield what, wrong


def _of_tensor(
    parameter: Parameter, value: Tensor, arguments: Mapping[str, Any], bindings: Bindings
) -> Iterator[tuple[str, Tensor]]:
    # Change the last row, so that a validation that stops early is found.
    row = value.reshape(-1, value.shape[-1] if value.dim() else 1)[-1]
    for what, line in _of_line(parameter, row.tolist(), arguments, bindings):
        if not all(_holds(value.dtype, number) for number in line):
            continue
        changed = value.clone(memory_format=torch.contiguous_format)
        changed.view(-1)[value.numel() - len(line) :] = torch.tensor(line, dtype=value.dtype)
        yield what, changed


def _of_line(
    parameter: Parameter, line: list[Any], arguments: Mapping[str, Any], bindings: Bindings
) -> Iterator[tuple[str, list[Any]]]:
    if not line:
        return
    for constraint in parameter.constraints:
        match constraint:
            case ValueRange():
                low, high = range_limits(constraint, bindings.dims, arguments)
                if constraint.above:
                    yield f"with the value {low}", [*line[:-1], low]
                for wrong in (None if low is None else low - 1, None if high is None else high + 1):
                    if wrong is not None:
                        yield f"with the value {wrong}", [*line[:-1], wrong]
            case Column(place):
                low, high = range_limits(constraint.range, bindings.dims, arguments)
                for wrong in (low - 1, high + 1, 0.5):
                    changed = [*line[:place], wrong, *line[place + 1 :]]
                    yield f"with the value {wrong} in column {place}", changed
            case Order():
                yield from _out_of_order(constraint, line)
            case Sum():
                yield "that adds up to more", [*line[:-1], line[-1] + 1]
                yield "that adds up to less", [*line[:-1], line[-1] - 1]
            case PartStarts():
                yield "with a part that starts later", [*line[:-1], line[-1] + 1]
                yield "with a part that starts earlier", [*line[:-1], line[-1] - 1]


def _out_of_order(order: Order, line: list[Any]) -> Iterator[tuple[str, list[Any]]]:
    if order.first is not None:
        yield f"with {line[0] - 1} as its first value", [line[0] - 1, *line[1:]]
    if order.last is not None:
        yield f"with {line[-1] + 1} as its last value", [*line[:-1], line[-1] + 1]
        yield f"with {line[-1] - 1} as its last value", [*line[:-1], line[-1] - 1]
    # Prefer a pair without the first and the last value: these may be fixed, so that swapping them
    # would violate two constraints.
    pairs = sorted(range(len(line) - 1), key=lambda i: i in (0, len(line) - 2))
    for i in pairs[:1]:
        before, after = line[i], line[i + 1]
        if before != after:
            yield "with values out of order", [*line[:i], after, before, *line[i + 2 :]]
        if order.strict:
            yield "with a value twice", [*line[:i], before, before, *line[i + 2 :]]


def _holds(dtype: torch.dtype, value: float) -> bool:
    """Return whether a dtype represents a value exactly."""
    if dtype.is_floating_point:
        return bool(torch.tensor(value, dtype=dtype).item() == value)
    info = torch.iinfo(dtype)
    return value == int(value) and info.min <= value <= info.max
