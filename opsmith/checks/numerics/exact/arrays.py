"""Arrays of numbers that are never rounded, and their arithmetic."""

from __future__ import annotations

import ctypes
import functools
import math
import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from opsmith.checks.numerics.exact.language import BYTES
from opsmith.kernels import Recipe

_NATIVE = Path(__file__).parent / "native"
#: The number of fields that ``native/field.h`` has primes for.
FIELDS = 4

#: Reasons why unequal residues prove nothing, of those in ``native/field.h``: a square root,
#: a literal of single precision.
ROOT, CONSTANT_F = 1, 16


@dataclass(frozen=True)
class Array:
    """Numbers of any shape.

    Attributes:
        values: the values, float64; they decide comparisons.
        residues: int64 of two halves: the residue mod p, and mod q.
        doubts: int64 of two halves: reasons why unequal residues prove nothing.
    """

    values: Tensor
    residues: Tensor
    doubts: Tensor

    @property
    def shape(self) -> torch.Size:
        """The sizes."""
        return self.values.shape

    def map(self, move: Any) -> Array:
        """Return the array with each of its three tensors moved in the same way."""
        return Array(move(self.values), move(self.residues), move(self.doubts))

    def map_with(self, other: Array, combine: Any) -> Array:
        """Return the array with each of its three tensors combined with that of another."""
        return Array(
            combine(self.values, other.values),
            combine(self.residues, other.residues),
            combine(self.doubts, other.doubts),
        )

    def rows(self, dims: Sequence[int]) -> Array:
        """Return a matrix with a row for each element of the other dims."""
        rank = self.values.dim()
        last = [dim % rank for dim in dims] if rank else []
        order = [dim for dim in range(rank) if dim not in last] + last
        count = math.prod(self.shape[dim] for dim in last)
        total = math.prod(self.shape[dim] for dim in range(rank) if dim not in last)
        return self.map(lambda one: one.permute(order).reshape(total, count))


class _Pointers(ctypes.Structure):
    _fields_ = [(name, ctypes.c_void_p) for name in ("values", "residues", "doubts")]


def _as_c(value: Any) -> Any:
    """Return an argument as the library takes it: a tensor or an array by where its numbers are."""
    match value:
        case Array(values, residues, doubts):
            return _Pointers(values.data_ptr(), residues.data_ptr(), doubts.data_ptr())
        case Tensor():
            return ctypes.c_void_p(value.data_ptr())
        case bool():
            return ctypes.c_int32(value)
        case int():
            return ctypes.c_int64(value)
        case float():
            return ctypes.c_double(value)
    return value


def contiguous(array: Array) -> Array:
    """Return the array in memory without gaps."""
    return array.map(Tensor.contiguous)


def empty(shape: Sequence[int]) -> Array:
    """Return an array whose numbers are not set."""
    return Array(
        torch.empty(shape, dtype=torch.float64),
        torch.empty(shape, dtype=torch.int64),
        torch.empty(shape, dtype=torch.int64),
    )


@functools.cache
def library() -> Any:
    """Return the compiled arithmetic, built at the first call."""
    recipe = Recipe(
        "opsmith_exact",
        sources=[_NATIVE / "operations.cpp"],
        flags=("-O2",),
        torch="none",
        what="the arithmetic of the row exact",
        once_for="",
    )
    return ctypes.CDLL(str(recipe.build()))


def _call(function: str, *given: Any) -> Any:
    return getattr(library(), f"opsmith_exact_{function}")(*map(_as_c, given))


def _apply(function: str, name: str, *given: Any) -> None:
    """Call a function of the library that applies another one, which has a name."""
    if _call(function, name.encode(), *given):
        raise AssertionError(f"the library has no function {name!r}")


def select(field: int) -> None:
    """Choose the field of all later operations, a number below `FIELDS`."""
    library().opsmith_exact_select(field)


@functools.cache
def prime(field: int) -> int:
    """Return the prime p of a field, as ``native/field.h`` has it."""
    text = (_NATIVE / "field.h").read_text()
    numbers = re.search(r"\bprimes\[\] = \{([\d, ]+)\}", text)
    assert numbers is not None
    return int(numbers[1].split(",")[field])


def constants(values: Tensor) -> Array:
    """Return the numbers that constants of a program stand for."""
    values = values.detach().to(torch.float64).contiguous()
    out = empty(values.shape)
    _call("constants", values.numel(), values, out)
    return out


def drawn(values: Tensor, seed: int) -> Array:
    """Return numbers with the given values and random residues; equal ones for equal values."""
    values = values.detach().to(torch.float64).contiguous()
    out = empty(values.shape)
    _call("draw", values.numel(), values, seed, out)
    return out


def one(name: str, array: Array) -> Array:
    """Apply a function to each number."""
    array, out = contiguous(array), empty(array.shape)
    _apply("one", name, out.values.numel(), array, out)
    return out


def broadcast(*arrays: Array) -> list[Array]:
    """Return arrays of one shape."""
    # `torch.broadcast_shapes` would import a computer algebra system, which takes a second.
    shape = torch.broadcast_tensors(*(array.values for array in arrays))[0].shape
    return [array.map(lambda tensor: tensor.expand(shape)) for array in arrays]


def two(name: str, first: Array, second: Array) -> Array:
    """Apply a function to each pair of numbers."""
    first, second = map(contiguous, broadcast(first, second))
    out = empty(first.shape)
    _apply("two", name, out.values.numel(), first, second, out)
    return out


def order(first: Array, second: Array) -> Tensor:
    """Return -1, 0 or 1 for each pair of numbers, 2 where one is NaN."""
    first, second = map(contiguous, broadcast(first, second))
    out = torch.empty(first.shape, dtype=torch.int8)
    _call("order", out.numel(), first, second, out)
    return out


def fold(name: str, start: float, rows: Array, *, cumulative: bool = False) -> Array:
    """Fold each row of a matrix, or replace each number by the fold of the numbers up to it."""
    rows = contiguous(rows)
    total, count = rows.shape
    out = empty(rows.shape if cumulative else (total,))
    _apply("fold", name, float(start), total, count, rows, out, cumulative)
    return out


def extreme(rows: Array, *, largest: bool) -> Tensor:
    """Return the position of the first largest, or smallest, number of each row."""
    rows = contiguous(rows)
    out = torch.empty(rows.shape[0], dtype=torch.int64)
    _call("extreme", *rows.shape, rows, largest, out)
    return out


def product(first: Array, second: Array) -> Array:
    """Return the matrix products of two batches of the same length."""
    first, second = contiguous(first), contiguous(second)
    batch, rows, inner = first.shape
    columns = second.shape[2]
    out = empty((batch, rows, columns))
    _call("product", batch, rows, inner, columns, first, second, out)
    return out


def to_bytes(array: Array) -> bytes:
    """Return the numbers as kernels see them: 16 bytes each, in the order of the array."""
    array = contiguous(array)
    count = array.values.numel()
    memory = ctypes.create_string_buffer(count * BYTES)
    _call("pack", count, array, memory)
    return memory.raw


def from_bytes(memory: bytes, shape: Sequence[int]) -> Array:
    """Return the numbers of a kernel's result; see `to_bytes`. Constants get their residues."""
    out = empty(shape)
    _call("unpack", out.values.numel(), memory, out)
    return out
