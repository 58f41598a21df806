"""Compare the arguments of a call with the signature, and bind its dimensions.

The generated C++ does the same in the same order, with the same messages. The fake kernel runs this
code with symbolic sizes. So only a `Check` branches on a size: elsewhere, a branch would turn the
symbol into a number.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from opsmith.errors import ArgumentError
from opsmith.signature.constraints import Bound, Order, Sum, ValueRange, range_limits, range_text
from opsmith.signature.dtype_variables import joined
from opsmith.signature.equations import Equation, refused_size
from opsmith.signature.items import Found, ItemSizes
from opsmith.signature.model import Signature
from opsmith.signature.parameters import Parameter, ScalarType, SequenceType, TensorType
from opsmith.signature.sizes import expressions
from opsmith.signature.sizes.conditions import Condition, unsatisfied
from opsmith.signature.sizes.expressions import AnySize, Integer, Name
from opsmith.signature.sizes.shapes import Fixed, Variadic, show_sizes
from opsmith.untyped import Arguments, Value

Check = Callable[[AnySize, Callable[[], str]], None]
"""Receives a condition (perhaps symbolic), and a function that returns the message if it fails."""


@dataclass(frozen=True)
class TensorInfo:
    """The properties of a tensor that are compared; `shape` may hold symbolic sizes."""

    shape: Sequence[AnySize]
    dtype: str
    device: str = "cpu"


@dataclass
class Bindings:
    """The dimensions, dtype and device that the arguments of a call fix.

    Attributes:
        variadic: the sizes that each ``*name`` stands for.
        dtypes: the dtype of each dtype variable; `None` if no tensor fixed it.
        device: the call's device, if a tensor fixed it.
        by: the argument that fixed each name (and ``device``), and each dtype variable by position.
    """

    dims: dict[str, AnySize] = field(default_factory=dict)
    variadic: dict[str, tuple[AnySize, ...]] = field(default_factory=dict)
    dtypes: list[str | None] = field(default_factory=list)
    device: str | None = None
    by: dict[str | int, str] = field(default_factory=dict)

    @property
    def dtype(self) -> str | None:
        """The choice of dtypes, as `Signature.generic` has it; `None` if no tensor fixed any."""
        return joined(self.dtypes)

    def text(self) -> str:
        """Return ``B=1, N=6``, in the order in which the dimensions were bound."""
        parts = []
        for name in self.by:
            if not isinstance(name, str):
                continue
            if name in self.dims:
                parts.append(f"{name}={self.dims[name]}")
            elif name in self.variadic:
                parts.append(f"*{name}={show_sizes(self.variadic[name])}")
        return ", ".join(parts)


def require(condition: object, message: Callable[[], str]) -> None:
    """Raise an error if a condition of a real call does not hold; see `Check`.

    Raises:
        ArgumentError: the condition does not hold.
    """
    if not condition:
        raise ArgumentError(message())


def bind(signature: Signature, arguments: Arguments, check: Check = require) -> Bindings:
    """Bind every dimension, and compare every shape, dtype, device, length and scalar range.

    Args:
        arguments: every parameter's value by name: `TensorInfo` for tensors (lists of them for
            lists), `None` if absent, else plain values.
        check: called with each condition; `require` raises.

    Returns:
        The dimensions, dtype and device that the arguments fix.

    Raises:
        ArgumentError: raised by `require`; the message names the operator, the argument, the
            expected value with the dimensions bound so far, and the value found.
    """
    binder = _Binder(signature, arguments, check)
    for parameter in signature.parameters:
        if isinstance(parameter.type, SequenceType):
            binder.length(parameter, parameter.type)
        if parameter.name in signature.nonempty:
            binder.some(parameter)
    for parameter in signature.tensors:
        binder.tensors(parameter)
    for equation in signature.equations:
        for deferred in binder.deferred.pop((equation.parameter, equation.position), ()):
            binder.solved(equation, *deferred)
    for several in binder.deferred.values():
        for deferred in several:
            binder.expression(*deferred)
    for parameter in signature.parameters:
        if isinstance(parameter.type, ScalarType) and parameter.type.choices:
            binder.choice(parameter, parameter.type)
        if parameter.constraints and parameter.tensor_type is None:
            binder.scalar_constraints(parameter)
    for condition in signature.conditions:
        binder.condition(condition)
    return binder.bound


def result_shapes(
    signature: Signature,
    bindings: Bindings,
    scalars: Arguments,
    check: Check = require,
    data_dependent: Mapping[str, AnySize] | None = None,
) -> list[tuple[AnySize, ...]]:
    """Return the shape of each result of a call; the signature must be `shaped`.

    Args:
        bindings: the result of `bind` for the call.
        scalars: the call's scalar and sequence arguments.
        check: called with the condition that no size is negative.
        data_dependent: the sizes of the data-dependent dimensions, if known.
    """
    dims = {**bindings.dims, **(data_dependent or {})}
    found: list[tuple[AnySize, ...]] = []
    for result in signature.results:
        sizes: list[AnySize] = []
        for dim in signature.result_dims(result):
            if isinstance(dim, Variadic):
                sizes.extend(bindings.variadic[str(dim.name)])
                continue
            size = expressions.evaluate(dim.expression, dims, scalars)
            if not isinstance(dim.expression, Name):
                check(
                    size >= 0,
                    lambda dim=dim, size=size, result=result: (  # type: ignore[misc]
                        f"{signature.qualname}: the result {result.type} would have {size} as its "
                        f"dimension '{dim}'.\n  bound so far: {bindings.text()}"
                    ),
                )
            sizes.append(size)
        found.append(tuple(sizes))
    return found


_Deferred = tuple[str, TensorType, TensorInfo, int, Fixed]


class _Binder:
    def __init__(self, signature: Signature, arguments: Arguments, check: Check) -> None:
        self.signature = signature
        self.arguments = arguments
        self.check = check
        self.bound = Bindings(dtypes=[None] * len(signature.dtype_variables))
        # The dimensions that are expressions, by parameter and position in its shape.
        self.deferred: dict[tuple[str, int], list[_Deferred]] = {}
        self.items = ItemSizes()

    def length(self, parameter: Parameter, type_: SequenceType) -> None:
        value = self.arguments[parameter.name]
        if value is None or type_.length is None:
            return
        self.check(
            len(value) == type_.length,
            lambda: self.error(
                f"argument {parameter.name!r} has {len(value)} elements, expected {type_.length}."
            ),
        )

    def some(self, parameter: Parameter) -> None:
        fixed = " and ".join(self.signature.nonempty[parameter.name])
        self.check(
            len(self.arguments[parameter.name]) > 0,
            lambda: self.error(
                f"argument {parameter.name!r} has no tensors, expected at least one: nothing else "
                f"fixes {fixed}."
            ),
        )

    def tensors(self, parameter: Parameter) -> None:
        value = self.arguments[parameter.name]
        type_ = parameter.tensor_type
        assert type_ is not None
        if value is None and parameter.optional:
            return
        many = parameter.is_tensor_list and value is not None
        if many:
            self.each(self.items.of_list(parameter, len(value)))
        for position, item in enumerate(value if many else [value]):
            name = f"{parameter.name}[{position}]" if many else parameter.name
            if item is None:
                expected = type_ if many else parameter.type
                raise ArgumentError(self.error(f"argument {name!r} is None, expected {expected}."))
            self.tensor(parameter.name, name, type_, item)
            if many:
                self.each(self.items.of_item(parameter, position, item.shape), item)

    def each(self, found: Iterable[Found], info: TensorInfo | None = None) -> None:
        for holds, message in found:
            self.check(holds, lambda message=message: self.error(message(), info))  # type: ignore[misc]

    def tensor(self, parameter: str, name: str, type_: TensorType, info: TensorInfo) -> None:
        self.device(name, info)
        if type_.shape is None:
            return
        self.dtype(name, type_, info)
        dims, rank = type_.shape.dims, type_.shape.rank
        variadic = type_.shape.variadic
        extra = len(info.shape) - rank
        at_least = "" if variadic is None else "at least "
        self.check(
            extra == 0 or (variadic is not None and extra > 0),
            lambda: self.error(
                f"argument {name!r} has {len(info.shape)} dimensions, expected "
                f"{at_least}{rank} for {type_}.",
                info,
            ),
        )
        axis = 0
        for position, dim in enumerate(dims):
            if isinstance(dim, Variadic):
                self.variadic(name, type_, info, dim, axis, tuple(info.shape[axis : axis + extra]))
                axis += extra
                continue
            if isinstance(dim, Fixed):
                if isinstance(dim.expression, Name):
                    self.named(name, type_, info, axis, dim.expression.name)
                else:
                    deferred = (name, type_, info, axis, dim)
                    self.deferred.setdefault((parameter, position), []).append(deferred)
            axis += 1

    def device(self, name: str, info: TensorInfo) -> None:
        if self.bound.device is None:
            self.bound.device = info.device
            self.bound.by["device"] = name
            return
        self.check(
            info.device == self.bound.device,
            lambda: self.error(
                f"argument {name!r} is on {info.device}, expected {self.bound.device}: every "
                f"tensor of a call is on one device, and {self.bound.by['device']!r} fixed it."
            ),
        )

    def dtype(self, name: str, type_: TensorType, info: TensorInfo) -> None:
        class_ = type_.dtypes
        position = self.signature.variable_position(type_)
        if position is None:
            self.check(
                info.dtype == class_.names[0],
                lambda: self.error(
                    f"argument {name!r} has dtype {info.dtype}, expected {class_.names[0]}.", info
                ),
            )
            return
        variable = self.signature.dtype_variables[position]
        found, chosen = variable.chosen_by(class_, info.dtype), self.bound.dtypes[position]
        if chosen is None:
            self.check(
                found in variable.names,
                lambda: self.error(
                    f"argument {name!r} has dtype {info.dtype}, expected one of "
                    f"{variable.expected(class_)}.",
                    info,
                ),
            )
            self.bound.dtypes[position] = found
            self.bound.by[position] = name
            return
        self.check(
            found == chosen,
            lambda: self.error(
                f"argument {name!r} has dtype {info.dtype}, expected "
                f"{variable.dtype_of(class_, chosen)}: {variable.shared}, and "
                f"{self.bound.by[position]!r} fixed it.",
                info,
            ),
        )

    def named(self, name: str, type_: TensorType, info: TensorInfo, axis: int, dim: str) -> None:
        size = info.shape[axis]
        if dim not in self.bound.dims:
            self.bound.dims[dim] = size
            self.bound.by[dim] = name
            return
        expected = self.bound.dims[dim]
        self.check(
            size == expected,
            lambda: self.error(
                f"argument {name!r} does not fit {type_}: dimension {axis} ({dim}) is {size}, "
                f"expected {expected}.",
                info,
                f" ({dim} by {self.bound.by[dim]!r})",
            ),
        )

    def variadic(
        self,
        name: str,
        type_: TensorType,
        info: TensorInfo,
        dim: Variadic,
        axis: int,
        sizes: tuple[AnySize, ...],
    ) -> None:
        if dim.name is None:
            return
        expected = self.bound.variadic.get(dim.name)
        if expected is None:
            self.bound.variadic[dim.name] = sizes
            self.bound.by[dim.name] = name
            return

        def message() -> str:
            return self.error(
                f"argument {name!r} does not fit {type_}: dimensions from {axis} (*{dim.name}) are "
                f"{show_sizes(sizes)}, expected {show_sizes(expected)}.",
                info,
                f" (*{dim.name} by {self.bound.by[str(dim.name)]!r})",
            )

        self.check(len(sizes) == len(expected), message)
        for size, want in zip(sizes, expected, strict=True):
            self.check(size == want, message)

    def expression(
        self, name: str, type_: TensorType, info: TensorInfo, axis: int, dim: Fixed
    ) -> None:
        size = info.shape[axis]
        expected = expressions.evaluate(dim.expression, self.bound.dims, self.arguments)
        shown = f" ({dim})" if not isinstance(dim.expression, expressions.Integer) else ""
        self.check(
            size == expected,
            lambda: self.error(
                f"argument {name!r} does not fit {type_}: dimension {axis}{shown} is {size}, "
                f"expected {expected}.",
                info,
            ),
        )

    def solved(
        self,
        equation: Equation,
        name: str,
        type_: TensorType,
        info: TensorInfo,
        axis: int,
        dim: Fixed,
    ) -> None:
        """Bind the unknown of a dimension; compare the size if another argument has bound it."""
        if equation.name in self.bound.dims:
            self.expression(name, type_, info, axis, dim)
            return
        size = info.shape[axis]
        factor, rest = equation.numbers(self.bound.dims, self.arguments)

        def message() -> str:
            why = refused_size(equation, dim, size, factor, rest)
            return self.error(
                f"argument {name!r} does not fit {type_}: dimension {axis} {why}", info
            )

        value = size - rest
        if equation.factor != Integer(1):
            self.check(factor != 0, message)
            # Ask for divisibility before dividing: a compiler then knows that nothing is lost.
            self.check(value % factor == 0, message)
            value = value // factor
        self.check(value >= 0, message)
        self.bound.dims[equation.name] = value
        self.bound.by[equation.name] = name

    def choice(self, parameter: Parameter, type_: ScalarType) -> None:
        value = self.arguments[parameter.name]
        choices = ", ".join(f"'{choice}'" for choice in type_.choices)
        self.check(
            value is None or value in type_.choices,
            lambda: self.error(
                f"argument {parameter.name!r} is '{value}', expected one of {choices}."
            ),
        )

    def scalar_constraints(self, parameter: Parameter) -> None:
        value = self.arguments[parameter.name]
        if value is None:
            return
        for constraint in parameter.constraints:
            match constraint:
                case ValueRange():
                    self.scalar_range(parameter, value, constraint)
                case Order():
                    self.order(parameter.name, value, constraint)
                case Sum():
                    self.sum(parameter.name, value, constraint)

    def scalar_range(self, parameter: Parameter, value: Value, range_: ValueRange) -> None:
        many = isinstance(parameter.type, SequenceType)
        low, high = range_limits(range_, self.bound.dims, self.arguments)
        for position, item in enumerate(value if many else [value]):
            shown = f"{parameter.name}[{position}]" if many else parameter.name

            def message(item: object = item, shown: str = shown) -> str:
                condition = range_text(range_, self.bound.dims, self.arguments)
                return self.error(f"argument {shown!r} is {item}, expected {condition}.")

            if low is not None:
                self.check(item > low if range_.above else item >= low, message)
            if high is not None:
                self.check(item <= high, message)

    def condition(self, condition: Condition) -> None:
        reason = ", ".join(f"{dim} by {self.bound.by[dim]!r}" for dim in condition.dims)
        for holds, message in unsatisfied(condition, self.bound.dims, self.arguments):
            self.check(
                holds,
                lambda message=message: self.error(  # type: ignore[misc]
                    message(), reason=f" ({reason})" if reason else ""
                ),
            )

    def order(self, name: str, value: Sequence[Value], order: Order) -> None:
        for end, bound, position in (("first", order.first, 0), ("last", order.last, -1)):
            if bound is not None:
                self.end(name, value, end, bound, position)
        for position in range(1, len(value)):
            before, item = value[position - 1], value[position]
            self.check(
                item > before if order.strict else item >= before,
                lambda b=before, i=item, p=position: self.error(  # type: ignore[misc]
                    f"argument {name!r} has value {i} at index {p} after {b} at index {p - 1}, "
                    f"expected {order.text}."
                ),
            )

    def end(self, name: str, value: Sequence[Value], end: str, bound: Bound, position: int) -> None:
        def expected() -> str:
            return f"{bound.shown(self.bound.dims, self.arguments)} as the {end} value"

        self.check(
            len(value) > 0,
            lambda: self.error(f"argument {name!r} has no values, expected {expected()}."),
        )
        self.check(
            value[position] == bound.number(self.bound.dims, self.arguments),
            lambda: self.error(
                f"argument {name!r} has value {value[position]} at index "
                f"{position % len(value)}, expected {expected()}."
            ),
        )

    def sum(self, name: str, value: Sequence[Value], constraint: Sum) -> None:
        found = sum(value)
        self.check(
            found == constraint.total.number(self.bound.dims, self.arguments),
            lambda: self.error(
                f"argument {name!r} {constraint.text(found)}, expected "
                f"{constraint.total.shown(self.bound.dims, self.arguments)}."
            ),
        )

    def error(self, first: str, info: TensorInfo | None = None, reason: str = "") -> str:
        lines = [f"{self.signature.qualname}: {first}"]
        if info is not None:
            lines.append(f"  got: shape {show_sizes(info.shape)}, dtype {info.dtype}")
        if self.bound.dims or self.bound.variadic:
            lines.append(f"  bound so far: {self.bound.text()}{reason}")
        return "\n".join(lines)
