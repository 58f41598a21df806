"""Faults of operators that get their state as arguments, in what they write there or keep."""

from __future__ import annotations

from typing import Any

import torch
from jaxtyping import Float32, Int64
from pairs import pair
from torch import Tensor

KIND = "state that callers hold"


def mean(
    count: int, total: Float32[Tensor, "C"], x: Float32[Tensor, "N C"]
) -> tuple[Float32[Tensor, "C"], Int64[Tensor, ""]]:
    total += x.sum(0)
    counted = count + x.shape[0]
    return total / max(counted, 1), torch.full((), counted, dtype=torch.int64)


def centre(offset: Float32[Tensor, "C"], x: Float32[Tensor, "N C"]) -> Float32[Tensor, "N C"]:
    centred = x - offset
    offset += x.sum(0)
    return centred


def weigh(
    weight: Float32[Tensor, "C"], factor: float, x: Float32[Tensor, "N C"]
) -> Float32[Tensor, "N C"]:
    return x * weight * factor


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
    """Holds in the kernel what belongs into the argument."""

    def __init__(self) -> None:
        self.count: int | None = None

    def __call__(self, count, total, x):
        before = count if self.count is None else self.count
        mean, counted = _mean(before, total, x)
        self.count = int(counted)
        return mean, counted


for name, wrong, row in (
    ("a count not given on", _not_counted, "reference"),
    ("a count that counts calls", _counted_as_one, "reference"),
    ("a running sum not written", _not_added, "reference"),
    ("a running sum written for large batches alone", _added_unless_small, "reference"),
    ("state in the kernel and not in the argument", Counting(), "reference"),
):
    pair(KIND, name, mean, wrong=wrong, right=_mean, row=row, mutates_args=("total",))


def _centre(offset, x):
    centred = x - offset
    offset += x.sum(0)
    return centred


def _centred_late(offset, x):
    offset += x.sum(0)
    return x - offset


pair(
    KIND,
    "an offset read after it was written",
    centre,
    wrong=_centred_late,
    right=_centre,
    row="reference",
    mutates_args=("offset",),
)


def _weighed(weight, factor, x):
    return x * weight * factor


def _scaled_in_place(weight, factor, x):
    return x * weight.mul_(factor)


class FirstTable:
    """Holds on to the table of the first call."""

    def __init__(self) -> None:
        self.tables: dict[int, Tensor] = {}

    def __call__(self, weight, factor, x):
        table = self.tables.setdefault(weight.shape[0], weight * factor)
        return x * table


class TableByAddress:
    """Prepares a table once for each address that its tensor has."""

    def __init__(self) -> None:
        self.tables: dict[Any, Tensor] = {}

    def __call__(self, weight, factor, x):
        key = weight.data_ptr(), weight.shape, factor
        return x * self.tables.setdefault(key, weight * factor)


for name, wrong, row in (
    ("a table written that nobody named", _scaled_in_place, "mutation"),
    ("the table of the first call", FirstTable(), "statefulness"),
    ("a table prepared once for an address", TableByAddress(), "statefulness"),
):
    pair(KIND, name, weigh, wrong=wrong, right=_weighed, row=row)
