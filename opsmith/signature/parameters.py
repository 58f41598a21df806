"""The parameters and results of an operator: their types, defaults and constraints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

from opsmith.signature.annotations import Selects
from opsmith.signature.constraints import Column, Constraint, ValueRange, range_limits
from opsmith.signature.dtypes import COMPLEX, FLOATING, INTEGRAL, DTypes
from opsmith.signature.sizes.expressions import AnySize, Expression, Name
from opsmith.signature.sizes.shapes import Dim, Fixed, Shape
from opsmith.untyped import Arguments, Value

Kind = Literal["int", "float", "bool", "str"]


class _NoDefault:
    def __repr__(self) -> str:
        return "NO_DEFAULT"


NO_DEFAULT: Value = _NoDefault()


def quoted(text: str) -> str:
    """Return a string as it is written in a declaration."""
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


@dataclass(frozen=True)
class TensorType:
    """A tensor: its dtypes, and its shape unless the annotation was a plain ``Tensor``."""

    dtypes: DTypes
    shape: Shape | None

    @property
    def shaped_generic(self) -> bool:
        """Return whether the tensor has the dtype of one of the call's dtype variables."""
        return self.shape is not None and self.dtypes.generic

    def __str__(self) -> str:
        if self.shape is None:
            return "Tensor"
        return f'{self.dtypes.label}[Tensor, "{self.shape.text}"]'


@dataclass(frozen=True)
class TensorListType:
    """A list of tensors, each of the element's type."""

    element: TensorType

    def __str__(self) -> str:
        return f"list[{self.element}]"


@dataclass(frozen=True)
class ScalarType:
    """An int, float, bool or str; `choices` are the allowed strings, if they are limited."""

    kind: Kind
    choices: tuple[str, ...] = ()

    def __str__(self) -> str:
        if self.choices:
            return f"Literal[{', '.join(map(quoted, self.choices))}]"
        return self.kind


@dataclass(frozen=True)
class SequenceType:
    """Several scalars of one kind; `length` is `None` if any number is allowed."""

    kind: Kind
    length: int | None

    def __str__(self) -> str:
        if self.length is None:
            return f"Sequence[{self.kind}]"
        return f"tuple[{', '.join([self.kind] * self.length)}]"


Type = TensorType | TensorListType | ScalarType | SequenceType


def is_integral(type_: Type) -> bool:
    """Return whether all values of a type are ints."""
    match type_:
        case TensorType(dtypes) | TensorListType(TensorType(dtypes)):
            return set(dtypes.names) <= set(INTEGRAL)
        case ScalarType(kind) | SequenceType(kind):
            return kind == "int"


def can_be_nan(type_: TensorType | TensorListType) -> bool:
    """Return whether a tensor can hold NaN."""
    dtypes = type_.element.dtypes if isinstance(type_, TensorListType) else type_.dtypes
    return not set(dtypes.names) <= {*INTEGRAL, "bool"}


class Typed:
    """A parameter or a result, by what its type says."""

    type: Type

    @property
    def tensor_type(self) -> TensorType | None:
        """The type of the tensor, or of each tensor of a list."""
        if isinstance(self.type, TensorListType):
            return self.type.element
        return self.type if isinstance(self.type, TensorType) else None

    @property
    def shape(self) -> Shape | None:
        """The declared shape of `tensor_type`; `None` if there is none."""
        return self.tensor_type.shape if self.tensor_type is not None else None

    @property
    def dims(self) -> tuple[Dim, ...]:
        """The dimensions of `shape`; none if there is no shape."""
        return self.shape.dims if self.shape is not None else ()

    @property
    def inexact(self) -> bool:
        """Return whether `tensor_type` may have a floating-point or complex dtype."""
        type_ = self.tensor_type
        return type_ is not None and not {*FLOATING, *COMPLEX}.isdisjoint(type_.dtypes.names)

    @property
    def computed(self) -> list[Expression]:
        """The dimensions of `shape` that are more than one name: numbers and expressions."""
        fixed = [dim.expression for dim in self.dims if isinstance(dim, Fixed)]
        return [expression for expression in fixed if not isinstance(expression, Name)]


@dataclass(frozen=True)
class Parameter(Typed):
    """A parameter of an operator.

    Attributes:
        name: its name in Python, in the schema and in C++.
        type: its type.
        optional: whether ``None`` may be passed.
        default: its default, or `NO_DEFAULT`.
        keyword_only: whether it stands after ``*``.
        mutated: whether the operator writes into it.
        constraints: the conditions on its values.
        differentiable: whether gradients may reach it.
        drawn: whether it is the seed and offset that calls draw from a generator (`Philox`).
        annotation: the annotation as messages quote it.
        unspecified: the values of a tensor for which results are unspecified: ``"NaN"``,
            ``"infinity"``.
    """

    name: str
    type: Type
    optional: bool = False
    default: Value = NO_DEFAULT
    keyword_only: bool = False
    mutated: bool = False
    constraints: tuple[Constraint, ...] = ()
    differentiable: bool = True
    drawn: bool = False
    annotation: str = ""
    unspecified: tuple[str, ...] = ()

    @property
    def is_tensor(self) -> bool:
        """Return whether it is a tensor (perhaps optional)."""
        return isinstance(self.type, TensorType)

    @property
    def is_tensor_list(self) -> bool:
        """Return whether it is a list of tensors."""
        return isinstance(self.type, TensorListType)

    @property
    def is_scalar(self) -> bool:
        """Return whether it is one int, float, bool or str."""
        return isinstance(self.type, ScalarType)

    @property
    def is_sequence(self) -> bool:
        """Return whether it is a sequence of ints, floats, bools or strs."""
        return isinstance(self.type, SequenceType)

    @property
    def ranges(self) -> tuple[ValueRange, ...]:
        """The constraints on each value by itself."""
        return tuple(c for c in self.constraints if isinstance(c, ValueRange))

    @property
    def columns(self) -> tuple[Column, ...]:
        """The columns of the last dimension that hold indices."""
        return tuple(c for c in self.constraints if isinstance(c, Column))

    def without_columns(self) -> Parameter:
        """Return the parameter as if no column held an index."""
        rest = tuple(c for c in self.constraints if not isinstance(c, Column))
        return replace(self, constraints=rest)

    def limits(self, dims: Mapping[str, AnySize], scalars: Arguments) -> tuple[AnySize, AnySize]:
        """Return the least and the largest value that the ranges allow; `None` for an open side."""
        every = [range_limits(range_, dims, scalars) for range_ in self.ranges]
        lows, highs = ([pair[side] for pair in every if pair[side] is not None] for side in (0, 1))
        return max(lows, default=None), min(highs, default=None)


@dataclass(frozen=True)
class Result(Typed):
    """A result of an operator.

    Attributes:
        name: ``out``, or ``out0``, ``out1``, … if there are several results; ``result``,
            ``result0``, … if a parameter has such a name.
        type: its type.
        differentiable: whether gradients may come from it.
        constraints: the order of its values, which the checks require.
        selects: the values by which its indices select, if it holds indices.
        annotation: the annotation as messages quote it.
    """

    name: str
    type: TensorType | TensorListType
    differentiable: bool = True
    constraints: tuple[Constraint, ...] = ()
    selects: Selects | None = None
    annotation: str = ""

    @property
    def tensor_type(self) -> TensorType:
        """The type of the tensor, or of each tensor of a list."""
        return self.type.element if isinstance(self.type, TensorListType) else self.type
