"""Map a call of an operator to one ONNX node in the operator's own domain.

The exporters write nodes by this layout, and the ONNX Runtime adapter reads them by it.

* Inputs: the tensor arguments in the signature's order, absent ones left empty. If there are lists
  of tensors, the required tensor arguments come first, and then the tensors of every list and the
  optional tensors, one after the other: ONNX allows only one input of variable length, the last.
* Attributes: all other arguments, under their names, typed: INT (bools too), FLOAT, STRING, INTS,
  FLOATS. ``None`` is left out. A FLOAT has 32 bits: if that is not exact, the attribute
  ``<name>_exact`` has the number as text.
* ``opsmith_counts``: INTS, only if there are lists: for each list or optional argument the number
of
  its tensors in the last input; -1 for ``None``.
* Outputs: the results, then the mutated arguments with their new contents.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from opsmith.errors import FormError
from opsmith.signature import Parameter, ScalarType, SequenceType, Signature

DOMAIN_VERSION = 1
COUNTS = "opsmith_counts"
EXACT = "_exact"

# The numbers of onnx.TensorProto.DataType, which ONNX Runtime uses as well.
ELEMENT_TYPES = {
    "float32": 1,
    "uint8": 2,
    "int8": 3,
    "int16": 5,
    "int32": 6,
    "int64": 7,
    "bool": 9,
    "float16": 10,
    "float64": 11,
    "complex64": 14,
    "complex128": 15,
    "bfloat16": 16,
    "uint16": 4,
    "uint32": 12,
    "uint64": 13,
    "float8_e4m3fn": 17,
    "float8_e5m2": 19,
}


@dataclass(frozen=True)
class NodeLayout:
    """The inputs, attributes and outputs of an operator's node."""

    signature: Signature

    @cached_property
    def tensors(self) -> tuple[Parameter, ...]:
        """Return the parameters that have one input each."""
        several = any(p.is_tensor_list for p in self.signature.parameters)
        return tuple(
            p for p in self.signature.parameters if p.is_tensor and not (several and p.optional)
        )

    @cached_property
    def lists(self) -> tuple[Parameter, ...]:
        """Return the parameters whose tensors share the last input: lists and optional tensors."""
        return tuple(p for p in self.signature.tensors if p not in self.tensors)

    @cached_property
    def attributes(self) -> tuple[Parameter, ...]:
        """Return the parameters that are attributes."""
        return tuple(p for p in self.signature.parameters if p.is_scalar or p.is_sequence)

    @property
    def output_count(self) -> int:
        """Return the number of outputs: results, then mutated arguments."""
        return len(self.signature.results) + len(self.signature.mutated)

    def inputs(self, arguments: Mapping[str, Any]) -> list[Any]:
        """Return a call's values in the order of the node's inputs, `None` for an absent value."""
        found = [arguments[parameter.name] for parameter in self.tensors]
        while found and found[-1] is None:
            found.pop()
        for parameter in self.lists:
            found += _items(parameter, arguments) or ()
        return found

    def attribute_values(
        self, arguments: Mapping[str, Any]
    ) -> dict[str, int | float | str | list[int] | list[float]]:
        """Return a call's attributes by name, in ONNX's types."""
        found: dict[str, Any] = {}
        for parameter in self.attributes:
            value = arguments[parameter.name]
            if value is None:
                continue
            found[parameter.name] = self._attribute(parameter, value)
            exact = _inexact(found[parameter.name])
            if exact:
                found[parameter.name + EXACT] = exact
        if self.lists:
            values = [_items(parameter, arguments) for parameter in self.lists]
            found[COUNTS] = [-1 if value is None else len(value) for value in values]
        return found

    def _attribute(self, parameter: Parameter, value: Any) -> Any:
        type_ = parameter.type
        assert isinstance(type_, ScalarType | SequenceType)
        converted: dict[str, Any] = {"int": int, "bool": int, "float": float, "str": str}
        many = isinstance(type_, SequenceType)
        if many and type_.kind == "str":
            raise FormError(
                self.signature.qualname,
                f"argument {parameter.name!r} is a sequence of strings, "
                "which a kernel in C++ does not take",
            )
        for item in value if many else [value]:
            if not isinstance(item, bool | int | float | str):
                raise FormError(
                    self.signature.qualname,
                    f"argument {parameter.name!r} is computed while "
                    f"the model runs ({item}), and an attribute of an ONNX node is fixed. Give it "
                    "a constant, export with sizes that do not change, or use the inline form.",
                )
        convert = converted[type_.kind]
        return [convert(item) for item in value] if many else convert(value)


def _items(parameter: Parameter, arguments: Mapping[str, Any]) -> Sequence[Any] | None:
    value = arguments[parameter.name]
    return [value] if parameter.is_tensor and value is not None else value


def _inexact(value: Any) -> str:
    """Return the numbers as text if a FLOAT of 32 bits would round them, else an empty text."""
    numbers: Sequence[Any] = value if isinstance(value, list) else [value]
    if not numbers or not isinstance(numbers[0], float):
        return ""
    if all(_narrow(number) == number or number != number for number in numbers):
        return ""
    return " ".join(repr(number) for number in numbers)


def _narrow(number: float) -> float:
    try:
        rounded: float = struct.unpack("f", struct.pack("f", number))[0]
    except OverflowError:
        return float("inf")
    return rounded
