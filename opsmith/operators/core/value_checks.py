"""Check values of a call's tensors against the declared constraints, like values.h in C++."""

from __future__ import annotations

from typing import NoReturn

import torch
from torch import Tensor

from opsmith.errors import ArgumentError
from opsmith.kernels.toolchain.devices import host_reads
from opsmith.operators.core.arguments import dtype_name, every_tensor_in
from opsmith.signature import (
    Bindings,
    Bound,
    Column,
    Order,
    Parameter,
    PartStarts,
    Signature,
    Sum,
    ValueRange,
)
from opsmith.signature.constraints import LARGEST, range_limits, range_text
from opsmith.signature.dtypes import FLOAT8, UNSIGNED
from opsmith.signature.sizes.shapes import show_sizes
from opsmith.untyped import Arguments, Value


def check_values(
    signature: Signature, parameter: Parameter, arguments: Arguments, bindings: Bindings
) -> None:
    """Compare the values of a tensor argument, or of each of a list, with its constraints.

    Args:
        parameter: the parameter that takes the tensor or the list.
        arguments: the call's arguments, by name.
        bindings: the dimensions and dtype that the call fixed.

    Raises:
        ArgumentError: a value breaks a constraint; the message is the one that the C++ adapters
            use.
    """
    if not parameter.constraints:
        return
    for name, value in every_tensor_in({parameter.name: arguments[parameter.name]}):
        # Reading the values of a device tensor would make every call wait for the device.
        if not host_reads(value.device.type):
            continue
        one = _Values(signature, name, value, arguments, bindings)
        for constraint in parameter.constraints:
            match constraint:
                case ValueRange():
                    one.range(constraint)
                case Column():
                    one.column(constraint)
                case Order():
                    one.order(constraint)
                case Sum():
                    one.sum(constraint)
                case PartStarts():
                    one.starts(constraint)


class _Values:
    """The values of one argument, to be compared with its constraints."""

    def __init__(
        self,
        signature: Signature,
        name: str,
        value: Tensor,
        arguments: Arguments,
        bindings: Bindings,
    ) -> None:
        self.operator = signature.qualname
        self.name = name
        self.given = value
        self.value = _comparable(value)
        self.arguments = arguments
        self.bindings = bindings

    def range(self, range_: ValueRange) -> None:
        value = self.value
        if value.numel() == 0:
            return
        low, high = range_limits(range_, self.bindings.dims, self.arguments)
        end = value
        if range_.start is not None:
            # Widened, so that a start and a length near the type's end cannot wrap around.
            end = value.to(torch.int64) + self.arguments[range_.start].to(torch.int64)
        if _inside(value, low, None, range_.above) and _inside(end, None, high):
            return
        wrong = torch.zeros_like(value, dtype=torch.bool)
        if low is not None:
            wrong |= ~(value > low if range_.above else value >= low)
        if high is not None:
            wrong |= ~(end <= high)
        text = range_text(range_, self.bindings.dims, self.arguments)
        self.refuse(f"{self.at(_first(wrong))}, expected {text}.")

    def column(self, column: Column) -> None:
        value = self.value[..., column.place].flatten()
        value = value.double() if value.is_floating_point() else value
        low, high = range_limits(column.range, self.bindings.dims, self.arguments)
        wrong = ~((value >= low) & (value <= high) & (value == value.floor()))
        if bool(wrong.any()):
            text = range_text(column.range, self.bindings.dims, self.arguments)
            flat = _first(wrong) * self.value.shape[-1] + column.place
            self.refuse(f"{self.at(flat)}, expected a whole number with {text}.")

    def order(self, order: Order) -> None:
        value = self.value
        rows = _rows(value)
        for end, bound, position in (("first", order.first, 0), ("last", order.last, -1)):
            if bound is not None:
                self.end(rows, end, bound, position)
        before, after = rows[:, :-1], rows[:, 1:]
        good = after > before if order.strict else after >= before
        if bool(good.all()):
            return
        row, position = divmod(_first(~good), good.shape[1])
        flat = row * rows.shape[1] + position
        before_it = f"{_number(value, flat)} at index {_index(value.shape, flat)}"
        self.refuse(f"{self.at(flat + 1)} after {before_it}, expected {order.text}.")

    def end(self, rows: Tensor, end: str, bound: Bound, position: int) -> None:
        if not len(rows):
            return
        expected = f"{bound.shown(self.bindings.dims, self.arguments)} as the {end} value"
        if not rows.shape[1]:
            self.refuse(f"has no values, expected {expected}.")
        wrong = ~(rows[:, position] == bound.number(self.bindings.dims, self.arguments))
        if bool(wrong.any()):
            flat = _first(wrong) * rows.shape[1] + position % rows.shape[1]
            self.refuse(f"{self.at(flat)}, expected {expected}.")

    def sum(self, sum_: Sum) -> None:
        sizes = _products(self.value) if sum_.shapes else self.value
        rows = _rows(sizes)
        expected = sum_.total.number(self.bindings.dims, self.arguments)
        for row, found in enumerate(_sums(rows)):
            if found == expected:
                continue
            where = ""
            if sizes.dim() > 1:
                where = f" in row {_index(sizes.shape[:-1], row)}"
            text = sum_.total.shown(self.bindings.dims, self.arguments)
            self.refuse(f"{sum_.text(found)}{where}, expected {text}.")

    def starts(self, starts: PartStarts) -> None:
        sizes = self.arguments[starts.of]
        rows = _rows(_products(sizes) if starts.shapes else sizes).to(torch.int64)
        ends = rows.cumsum(1)
        expected = (ends - rows).reshape(self.value.shape)
        wrong = self.value != expected
        if bool(wrong.any()):
            flat = _first(wrong)
            self.refuse(f"{self.at(flat)}, expected {_number(expected, flat)}: {starts.text}.")

    def at(self, flat: int) -> str:
        return f"has value {_number(self.given, flat)} at index {_index(self.value.shape, flat)}"

    def refuse(self, what: str) -> NoReturn:
        lines = [f"{self.operator}: argument {self.name!r} {what}"]
        if self.bindings.dims or self.bindings.variadic:
            lines.append(f"  bound so far: {self.bindings.text()}")
        raise ArgumentError("\n".join(lines))


def _comparable(value: Tensor) -> Tensor:
    """Convert `value` to a dtype that PyTorch compares; clamp a uint64 to the largest int64."""
    name = dtype_name(value.dtype)
    if name in FLOAT8:
        return value.to(torch.float32)
    if name == "uint64":
        signed = value.view(torch.int64)
        return torch.where(signed < 0, LARGEST, signed)
    return value.to(torch.int64) if name in UNSIGNED else value


def _inside(value: Tensor, low: Value, high: Value, above: bool = False) -> bool:
    smallest, largest = torch.aminmax(value)
    # Every comparison with NaN is False, so ask whether the order is right, not whether it is
    # wrong.
    return (low is None or bool(smallest > low if above else smallest >= low)) and (
        high is None or bool(largest <= high)
    )


def _first(wrong: Tensor) -> int:
    return int(wrong.flatten().nonzero()[0, 0])


def _number(value: Tensor, flat: int) -> object:
    return value.flatten()[flat].item()


def _index(shape: torch.Size, flat: int) -> str:
    if len(shape) <= 1:
        return str(flat)
    return show_sizes([int(i) for i in torch.unravel_index(torch.tensor(flat), shape)])


def _rows(value: Tensor) -> Tensor:
    """Reshape `value` to two dimensions; all but the last become the first."""
    return value.reshape(value.shape[:-1].numel(), value.shape[-1])


def _products(shapes: Tensor) -> Tensor:
    """Return the number of elements of each shape in the last dimension, at most `LARGEST`."""
    exact = shapes.to(torch.int64).prod(-1)
    if not bool((shapes.double().prod(-1).abs() > 2.0**62).any()):
        return exact
    rows = _rows(shapes).tolist()
    return torch.tensor([_product(row) for row in rows]).reshape(exact.shape)


def _product(sizes: list[int]) -> int:
    product = 0 if 0 in sizes else 1
    for size in sizes:
        product = min(product * size, LARGEST)
    return product


def _sums(rows: Tensor) -> list[int]:
    """Return the sum of each row, at most `LARGEST`."""
    if bool((rows.double().abs().sum(1) > 2.0**62).any()):
        return [min(sum(row), LARGEST) for row in rows.tolist()]
    found: list[int] = rows.to(torch.int64).sum(1).tolist()
    return found
