"""Faults of custom classes: what a method does to the object's fields, and keeps beside them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from jaxtyping import Float32
from pairs import PAIRS, Pair, identifier
from torch import Tensor

import opsmith

KIND = "class state"


class Mean:
    count: int
    total: Float32[Tensor, "C"]

    @opsmith.method(mutates=("count", "total"))
    def forward(self, x: Float32[Tensor, "N C"]) -> Float32[Tensor, "C"]:
        self.count += x.shape[0]
        self.total += x.sum(0)
        return self.total / max(self.count, 1)


class Centre:
    offset: Float32[Tensor, "C"]

    @opsmith.method(mutates=("offset",))
    def forward(self, x: Float32[Tensor, "N C"]) -> Float32[Tensor, "N C"]:
        centred = x - self.offset
        self.offset += x.sum(0)
        return centred


class Table:
    weight: Float32[Tensor, "C"]
    factor: float = 1.0

    @opsmith.method()
    def forward(self, x: Float32[Tensor, "N C"]) -> Float32[Tensor, "N C"]:
        return x * self.weight * self.factor


def class_pair(
    name: str, declared: type, *, wrong: Callable[..., Any], right: Callable[..., Any], row: str
) -> None:
    """Plant a fault in the method `forward` of a class."""
    twins = []
    for suffix, kernel in (("wrong", wrong), ("right", right)):
        twin = type(f"{identifier(name)}__{suffix}", (), dict(vars(declared)))
        operator = opsmith.custom_class(f"faults::{twin.__name__}")(twin).forward.operator
        operator.register_kernel("cpu", kernel)
        twins.append(operator)
    PAIRS.append(Pair(name, KIND, *twins, row))


def _as_tensor(number: int) -> Tensor:
    return torch.tensor(number, dtype=torch.int64)


def _mean(count, total, x):
    total += x.sum(0)
    return total / max(count + x.shape[0], 1), _as_tensor(count + x.shape[0])


def _not_counted(count, total, x):
    return _mean(count, total, x)[0], _as_tensor(count)


def _counted_as_one(count, total, x):
    return _mean(count, total, x)[0], _as_tensor(count + 1)


def _not_added(count, total, x):
    return (total + x.sum(0)) / max(count + x.shape[0], 1), _as_tensor(count + x.shape[0])


def _added_unless_small(count, total, x):
    mean, counted = _mean(count, total.clone(), x)
    if x.shape[0] > 1:
        total += x.sum(0)
    return mean, counted


class Counting:
    """Holds in the kernel what belongs into the object."""

    def __init__(self) -> None:
        self.count: int | None = None

    def __call__(self, count, total, x):
        before = count if self.count is None else self.count
        mean, counted = _mean(before, total, x)
        self.count = int(counted)
        return mean, counted


for name, wrong, row in (
    ("a number in a field not given on", _not_counted, "reference"),
    ("a number in a field counted by calls", _counted_as_one, "reference"),
    ("a tensor in a field not written", _not_added, "reference"),
    ("a field written for large batches alone", _added_unless_small, "reference"),
    ("state in the kernel and not in the object", Counting(), "reference"),
):
    class_pair(name, Mean, wrong=wrong, right=_mean, row=row)


def _centre(offset, x):
    centred = x - offset
    offset += x.sum(0)
    return centred


def _centred_late(offset, x):
    offset += x.sum(0)
    return x - offset


class_pair(
    "a field read after it was written", Centre, wrong=_centred_late, right=_centre, row="reference"
)


def _weighed(weight, factor, x):
    return x * weight * factor


def _scaled_in_place(weight, factor, x):
    return x * weight.mul_(factor)


class FirstTable:
    """Holds on to what was in the fields of the first object."""

    def __init__(self) -> None:
        self.tables: dict[int, Tensor] = {}

    def __call__(self, weight, factor, x):
        table = self.tables.setdefault(weight.shape[0], weight * factor)
        return x * table


class TableByAddress:
    """Prepares a table once for each address that a field's tensor has."""

    def __init__(self) -> None:
        self.tables: dict[Any, Tensor] = {}

    def __call__(self, weight, factor, x):
        key = weight.data_ptr(), weight.shape, factor
        return x * self.tables.setdefault(key, weight * factor)


for name, wrong, row in (
    ("a field written that nobody named", _scaled_in_place, "mutation"),
    ("the table of the first object", FirstTable(), "statefulness"),
    ("a table prepared once for an address", TableByAddress(), "statefulness"),
):
    class_pair(name, Table, wrong=wrong, right=_weighed, row=row)
