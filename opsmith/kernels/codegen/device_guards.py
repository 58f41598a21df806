"""Generate the calls in ``<op>.h`` that check values of tensors on the device."""

from __future__ import annotations

from dataclasses import dataclass

from opsmith.kernels.codegen.cpp_names import expression, identifier, quote
from opsmith.kernels.codegen.validation import ValidationCode
from opsmith.signature.constraints import ValueRange
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
        line: the call.
    """

    name: str
    start: str
    reasons: str
    line: str


def guards_of(signature: Signature) -> list[GuardCode]:
    """Return the checks of read-only tensors of integers whose values have a range.

    Floating-point values and the order of values are checked on the host only, since they never
    make a kernel read outside its memory.
    """
    code = _InRawStruct(signature)
    found: list[GuardCode] = []
    for parameter in signature.parameters:
        range_ = _range_of(signature, parameter)
        if range_ is None:
            continue
        member = f"&{code.raw}::{identifier(parameter.name)}"
        text = code.text(range_)
        line = f"look({len(found)}, {member}, {text});"
        if range_.start is not None:
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
                line,
            )
        )
    return found


def _range_of(signature: Signature, parameter: Parameter) -> ValueRange | None:
    type_ = parameter.type
    if not isinstance(type_, TensorType) or type_.shape is None or parameter.mutated:
        return None
    # The kernel that looks at the values asks each tensor for its dtype.
    if not all(name.startswith(("int", "uint8")) for name in type_.dtypes.names):
        return None
    ranges = [one for one in parameter.constraints if isinstance(one, ValueRange)]
    ranges.sort(key=lambda one: not one.reads)
    for one in ranges[:1]:
        values = [bound.value for bound in one.bounds]
        if all(
            not isinstance(value, float)
            and set(expressions.names(value)) <= set(signature.certain_dims)
            for value in values
        ):
            return one
    return None


class _InRawStruct(ValidationCode):
    """Writes ranges over the members of the ``_raw`` struct, where every dimension is bound."""

    @property
    def raw(self) -> str:
        """The name of the struct."""
        return f"{self.signature.namespace}__{self.signature.name}_raw"

    def text(self, range_: ValueRange) -> str:
        """Return a range as C++."""
        return self._constraint(range_)

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
