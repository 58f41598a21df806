"""Generate the calls in ``<op>.h`` that check values of tensors on the device."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from opsmith.kernels.codegen.cpp_names import expression, identifier, quote
from opsmith.kernels.codegen.validation import ValidationCode
from opsmith.signature.constraints import Column, Constraint, ValueRange
from opsmith.signature.model import Signature
from opsmith.signature.parameters import Parameter, TensorType
from opsmith.signature.sizes import expressions
from opsmith.signature.sizes.expressions import Expression


@dataclass(frozen=True)
class GuardCode:
    """The check of one tensor.

    Attributes:
        name: the name of the parameter.
        start: C++ for the name of the argument that holds the starts of its runs.
        reasons: C++ for the expressions that its limits come from.
        column: C++ for whether one column alone holds indices.
        line: the call.
    """

    name: str
    start: str
    reasons: str
    column: str
    line: str


def guards_of(signature: Signature) -> list[GuardCode]:
    """Return the checks of read-only tensors that hold integers or indices, and have a range.

    Other floating-point values and the order of values are checked on the host only, since they
    never make a kernel read outside its memory.
    """
    code = _InRawStruct(signature)
    found: list[GuardCode] = []
    for parameter, constraint in _looked_at(signature):
        range_ = constraint.range if isinstance(constraint, Column) else constraint
        member = f"&{code.raw}::{identifier(parameter.name)}"
        text = code.text(constraint)
        line = f"look({len(found)}, {member}, {text});"
        if isinstance(constraint, Column):
            line = line.replace("look(", "look_at_column(", 1)
        elif range_.start is not None:
            start = next(p for p in signature.parameters if p.name == range_.start)
            own = _range_of(signature, start)
            whole = f"Whole({code.text(own)})" if own is not None else "Whole()"
            starts = f"raw.{identifier(start.name)}"
            line = f"look_at_runs({len(found)}, {member}, {starts}, {text}, {whole});"
        reasons = ", ".join(b.reason for b in range_.bounds if b.reason is not None)
        found.append(
            GuardCode(
                parameter.name,
                "nullptr" if range_.start is None else quote(range_.start),
                quote(reasons) if reasons else "nullptr",
                "true" if isinstance(constraint, Column) else "false",
                line,
            )
        )
    return found


def _looked_at(signature: Signature) -> Iterator[tuple[Parameter, ValueRange | Column]]:
    for parameter in signature.parameters:
        range_ = _range_of(signature, parameter)
        columns = {one.place: one for one in parameter.columns if _is_bound(signature, one)}
        if range_ is not None:
            yield parameter, range_
        elif _has_dtypes(parameter, ("int", "uint8", "float16", "bfloat16", "float32", "float64")):
            yield from ((parameter, one) for one in columns.values())


def _range_of(signature: Signature, parameter: Parameter) -> ValueRange | None:
    if not _has_dtypes(parameter, ("int", "uint8")):
        return None
    ranges = sorted(parameter.ranges, key=lambda one: not one.reads)
    return next((one for one in ranges[:1] if _is_bound(signature, one)), None)


def _has_dtypes(parameter: Parameter, begin: tuple[str, ...]) -> bool:
    """Return whether a tensor that is only read has one of some dtypes."""
    type_ = parameter.type
    if not isinstance(type_, TensorType) or type_.shape is None or parameter.mutated:
        return False
    # The kernel that looks at the values asks each tensor for its dtype.
    return all(name.startswith(begin) for name in type_.dtypes.names)


def _is_bound(signature: Signature, constraint: Constraint) -> bool:
    """Return whether every call knows the integers that values are compared with."""
    return all(
        not isinstance(bound.value, float)
        and set(expressions.names(bound.value)) <= set(signature.certain_dims)
        for bound in constraint.bounds
    )


class _InRawStruct(ValidationCode):
    """Writes ranges over the members of the ``_raw`` struct, where every dimension is bound."""

    @property
    def raw(self) -> str:
        """The name of the struct."""
        return f"{self.signature.namespace}__{self.signature.name}_raw"

    def text(self, constraint: Constraint) -> str:
        """Return a constraint as C++."""
        return self._constraint(constraint)

    def _cpp(self, value: Expression) -> str:
        return expression(
            value,
            lambda name: f"raw.{identifier(name)}",
            lambda parameter, index: (
                f"raw.{identifier(parameter)}"
                if index is None
                else f"raw.{identifier(parameter)}.items[{index}]"
            ),
        )
