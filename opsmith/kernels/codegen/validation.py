"""Generate ``<op>_check.h``, the C++ counterpart of opsmith/signature/binding.py."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from opsmith.kernels.codegen.argument_struct import dlpack_dtype, is_dependent, template_parameters
from opsmith.kernels.codegen.cpp_names import (
    ELEMENT_TYPES,
    dtype,
    dtype_bits,
    expression,
    floating,
    identifier,
    quote,
)
from opsmith.kernels.toolchain.devices import DEVICES
from opsmith.signature.constraints import (
    Bound,
    Column,
    Constraint,
    Order,
    PartStarts,
    Sum,
    ValueRange,
)
from opsmith.signature.equations import Equation
from opsmith.signature.items import item_dims, items_of
from opsmith.signature.model import Signature
from opsmith.signature.parameters import (
    Parameter,
    Result,
    ScalarType,
    SequenceType,
    TensorType,
    is_integral,
)
from opsmith.signature.sizes.expressions import Expression, Integer, Name
from opsmith.signature.sizes.shapes import Dim, Fixed, Shape, Unnamed, Variadic

_COMPARE = {
    "==": "equal_to",
    "!=": "not_equal_to",
    "<": "less",
    "<=": "less_equal",
    ">": "greater",
    ">=": "greater_equal",
}


@dataclass(frozen=True)
class TypeText:
    """A C++ constant with the text of a type for messages."""

    constant: str
    text: str


@dataclass(frozen=True)
class ResultCode:
    """A result, the statements for its sizes, and those for memory that the caller gives for it."""

    name: str
    text: str
    position: int
    dependent: bool
    lines: list[str]
    given: list[str] = field(default_factory=list)


class ValidationCode:
    """Writes the validation of one signature."""

    def __init__(self, signature: Signature) -> None:
        self.signature = signature
        self.variadics = tuple(d for d in signature.dims if d in signature.variadic_dims)
        self.dims = tuple(d for d in signature.dims if d not in signature.variadic_dims)

    @cached_property
    def types(self) -> list[TypeText]:
        """The type constants that the statements use."""
        found = [
            TypeText(f"{p.name}_type", str(p.tensor_type))
            for p in self.signature.tensors
            if p.shape
        ]
        return found + [
            TypeText(f"{r.name}_type", str(r.type)) for r in self.signature.results if r.shape
        ]

    @property
    def variables(self) -> list[dict[str, object]]:
        """The dtype variables in the form that the templates need."""
        return [
            {
                "bits": dtype_bits(variable.names),
                "label": variable.label,
                "labels": " and ".join(dict.fromkeys(c.label for c in variable.classes)),
                "names": variable.names,
                "shared": variable.shared,
                "parameter": parameter,
            }
            for variable, parameter in zip(
                self.signature.dtype_variables, template_parameters(self.signature), strict=True
            )
        ]

    def bind(self) -> list[str]:
        """Return the checks of arguments, in the order of `signature.bind`."""
        lines: list[str] = []
        for parameter in self.signature.parameters:
            type_ = parameter.type
            if isinstance(type_, SequenceType) and type_.length is not None:
                raw = f"raw.{identifier(parameter.name)}"
                check = f"length({quote(parameter.name)}, {raw}.count, {type_.length});"
                lines.append(f"if ({raw}.count >= 0) {check}" if parameter.optional else check)
            if parameter.name in self.signature.nonempty:
                fixed = " and ".join(self.signature.nonempty[parameter.name])
                count = f"raw.{identifier(parameter.name)}.count"
                lines.append(f"some({quote(parameter.name)}, {count}, {quote(fixed)});")
        for parameter in self.signature.tensors:
            if parameter.is_tensor and not parameter.optional:
                raw, where = (
                    f"raw.{identifier(parameter.name)}",
                    f"Where{{{quote(parameter.name)}}}",
                )
                lines.append(f"if ({raw} == nullptr) absent({where}, {_type(parameter)});")
            lines += self._lengths(parameter)
            lines += self._tensors(parameter, self._tensor(parameter))
        for equation in self.signature.equations:
            lines += self._tensors(
                self.signature.by_name[equation.parameter], [self._solved(equation)]
            )
        for parameter in self.signature.tensors:
            deferred = self._expressions(parameter)
            if deferred:
                lines += self._tensors(parameter, deferred)
        for parameter in self.signature.parameters:
            if isinstance(parameter.type, ScalarType) and parameter.type.choices:
                raw = f"raw.{identifier(parameter.name)}"
                choices = ", ".join(map(quote, parameter.type.choices))
                check = f"choice({quote(parameter.name)}, {raw}, {{{choices}}});"
                lines.append(f"if ({raw}.data != nullptr) {check}" if parameter.optional else check)
            if parameter.constraints and parameter.tensor_type is None:
                lines += self._scalar_constraints(parameter)
        for condition in self.signature.conditions:
            dims = ", ".join(str(self.dims.index(dim)) for dim in condition.dims)
            for one in condition.comparisons:
                sides = f"std::pair({self._cpp(one.left)}, {self._cpp(one.right)})"
                words = f"{quote(condition.text)}, {quote(one.op)}, {{{dims}}}"
                lines.append(
                    f"satisfies({words}, [&] {{ return {sides}; }}, std::{_COMPARE[one.op]}<>());"
                )
        for position in range(len(self.signature.dtype_variables)):
            lines.append(f"raw.opsmith_dtypes[{position}] = dtype({position});")
        for index, dim in enumerate(self.dims):
            lines.append(f"raw.{identifier(dim)} = dim({index});")
        for index, dim in enumerate(self.variadics):
            bound = f"variadic({index})"
            lines.append(f"raw.{identifier(dim)} = {{{bound}.count, {bound}.sizes}};")
        return lines

    @cached_property
    def items(self) -> list[dict[str, str]]:
        """The sizes that lists share place by place: a variable for each, and the text of it."""
        found: dict[str, str] = {}
        for parameter in self.signature.tensors:
            for _, dim in item_dims(parameter.shape):
                found.setdefault(f"item_{dim.item}", str(dim))
        return [{"variable": variable, "text": text} for variable, text in found.items()]

    def _lengths(self, parameter: Parameter) -> list[str]:
        """Return the comparisons of a list's length with those of the lists that share sizes."""
        shape, raw = parameter.shape, f"raw.{identifier(parameter.name)}"
        first = {str(dim.item): (axis, dim) for axis, dim in reversed([*item_dims(shape)])}
        lines = []
        for name in items_of(parameter):
            axis, dim = first[name]
            rest = shape.rank if shape is not None and isinstance(dim, Variadic) else -1
            call = f"item_{name}.list(*this, {quote(parameter.name)}, {raw}, {axis}, {rest});"
            lines.append(f"if ({raw}.count >= 0) {call}" if parameter.optional else call)
        return lines

    def _tensors(self, parameter: Parameter, statements: list[str]) -> list[str]:
        """Return `statements` about ``tensor`` at ``where``, for a tensor or for each of a list."""
        raw = f"raw.{identifier(parameter.name)}"
        name = quote(parameter.name)
        inner = [f"  {line}" for line in statements]
        if parameter.is_tensor_list:
            return [
                f"for (int64_t i = 0; i < {raw}.count; ++i) {{",
                f"  const DLTensor& tensor = {raw}.items[i];",
                f"  const Where where{{{name}, i}};",
                *inner,
                "}",
            ]
        return [
            f"if ({raw} != nullptr) {{" if parameter.optional else "{",
            f"  const DLTensor& tensor = *{raw};",
            f"  constexpr Where where{{{name}}};",
            *inner,
            "}",
        ]

    def _tensor(self, parameter: Parameter) -> list[str]:
        type_ = parameter.tensor_type
        assert type_ is not None
        lines = ["memory(where, tensor);", "same_device(where, tensor);"]
        if parameter.is_tensor_list:
            lines.insert(0, f"if (tensor.ndim < 0) absent(where, {_type(parameter)});")
        if type_.shape is None:
            return lines
        position = self.signature.variable_position(type_)
        if position is None:
            lines.append(f"concrete_dtype(where, tensor, {dtype(type_.dtypes.names[0])});")
        else:
            variable = self.signature.dtype_variables[position]
            expected = quote(variable.expected(type_.dtypes))
            is_complex = str(variable.is_complex(type_.dtypes)).lower()
            lines.append(
                f"chosen_dtype(where, tensor, {position}, variables[{position}], {expected}, "
                f"{is_complex});"
            )
        constant = f"{parameter.name}_type"
        at_least = "true" if type_.shape.variadic is not None else "false"
        lines.append(f"rank(where, tensor, {type_.shape.rank}, {at_least}, {constant});")
        for axis, dim in _axes(type_.shape):
            match dim:
                case Fixed(Name(name)):
                    index = self.dims.index(name)
                    lines.append(f"named(where, tensor, {axis}, {index}, {constant});")
                case Variadic(str(name)):
                    index = self.variadics.index(name)
                    count = f"tensor.ndim - {type_.shape.rank}"
                    lines.append(f"variadic(where, tensor, {axis}, {count}, {index}, {constant});")
                case Variadic(item=str(name)):
                    count = f"tensor.ndim - {type_.shape.rank}"
                    lines.append(
                        f"item_{name}.several(*this, where, tensor, {axis}, {count}, {constant});"
                    )
                case Unnamed(str(name)):
                    lines.append(f"item_{name}.one(*this, where, tensor, {axis}, {constant});")
        return lines

    def _expressions(self, parameter: Parameter) -> list[str]:
        if parameter.shape is None:
            return []
        lines = []
        solved = {e.position for e in self.signature.equations if e.parameter == parameter.name}
        for position, (axis, dim) in enumerate(_axes(parameter.shape)):
            if position in solved:
                continue
            if isinstance(dim, Fixed) and not isinstance(dim.expression, Name):
                text = "nullptr" if isinstance(dim.expression, Integer) else quote(str(dim))
                expected = self._cpp(dim.expression)
                lines.append(
                    f"expression(where, tensor, {axis}, {expected}, {text}, {parameter.name}_type);"
                )
        return lines

    def _solved(self, equation: Equation) -> str:
        parameter = self.signature.by_name[equation.parameter]
        assert parameter.shape is not None
        axis, dim = list(_axes(parameter.shape))[equation.position]
        factor = equation.factor_text
        words = [
            axis,
            str(self.dims.index(equation.name)),
            self._cpp(equation.factor),
            self._cpp(equation.rest),
            "nullptr" if factor is None else quote(factor),
            quote(str(dim)),
            f"{parameter.name}_type",
        ]
        return f"solved(where, tensor, {', '.join(words)});"

    def _scalar_constraints(self, parameter: Parameter) -> list[str]:
        raw = f"raw.{identifier(parameter.name)}"
        name = quote(parameter.name)
        lines: list[str] = []
        for constraint in parameter.constraints:
            text = self._constraint(constraint)
            present = f"if ({raw}.count >= 0) " if parameter.optional else ""
            match constraint:
                case Order() | Sum():
                    function = "check_order" if isinstance(constraint, Order) else "check_sum"
                    number = "int64_t" if is_integral(parameter.type) else "double"
                    lines.append(
                        f"{present}detail::{function}<{number}>(detail::without_threads(), *this, "
                        f"Where{{{name}}}, detail::Line({raw}.items, {raw}.count), {text});"
                    )
                case _ if isinstance(parameter.type, SequenceType):
                    lines.append(f"for (int64_t i = 0; i < {raw}.count; ++i) {{")
                    lines.append(f"  scalar(Where{{{name}, i}}, {raw}.items[i], {text});")
                    lines.append("}")
                case _ if parameter.optional:
                    lines.append(
                        f"if ({raw}.present) scalar(Where{{{name}}}, {raw}.value, {text});"
                    )
                case _:
                    lines.append(f"scalar(Where{{{name}}}, {raw}, {text});")
        return lines

    def values(self) -> list[str]:
        """Return the scans of every tensor whose values are constrained."""
        readable = " || ".join(
            f"tensor.device.device_type == {device.dlpack}"
            for device in DEVICES.values()
            if device.host_reads
        )
        lines: list[str] = []
        for parameter in self.signature.tensors:
            type_ = parameter.tensor_type
            if not parameter.constraints or type_ is None:
                continue
            scans = [self._scan(parameter, type_, one) for one in parameter.constraints]
            inner = [f"  {line}" for scan in scans for line in scan]
            lines += self._tensors(parameter, [f"if ({readable}) {{", *inner, "}"])
        return lines

    def _scan(self, parameter: Parameter, type_: TensorType, constraint: Constraint) -> list[str]:
        function = {
            Column: "check_column",
            Order: "check_order",
            Sum: "check_sum",
            PartStarts: "check_starts",
            ValueRange: "check_runs" if constraint.reads else "check_values",
        }[type(constraint)]
        tensors = ", ".join(["tensor", *(f"*raw.{identifier(n)}" for n in constraint.reads)])
        rest = f"(context, *this, where, {tensors}, {self._constraint(constraint)});"
        position = self.signature.variable_position(type_)
        if position is None:
            return [f"detail::{function}<{ELEMENT_TYPES[type_.dtypes.names[0]]}>{rest}"]
        names = self.signature.dtype_variables[position].names
        elements = ", ".join(ELEMENT_TYPES[name] for name in names)
        return [
            f'dispatch<{elements}>(raw.opsmith_dtypes[{position}], "range", [&]<typename T>() {{',
            f"  detail::{function}<T>{rest}",
            "});",
        ]

    def results(self) -> list[ResultCode]:
        """Return the statements for each result's sizes; none if the kernel allocates it."""
        return [
            ResultCode(
                identifier(result.name),
                str(result.type),
                position,
                is_dependent(self.signature, result),
                self._sizes(result) if not is_dependent(self.signature, result) else [],
                self._given(result) if not self.signature.no_out else [],
            )
            for position, result in enumerate(self.signature.results)
        ]

    def _sizes(self, result: Result) -> list[str]:
        constant = f"{result.name}_type"
        lines = []
        for dim in self.signature.result_dims(result):
            if isinstance(dim, Variadic):
                index = self.variadics.index(str(dim.name))
                lines.append(f"this->result(sizes, variadic({index}), {constant});")
            else:
                size = self._cpp(dim.expression)
                lines.append(f"this->result(sizes, {size}, {quote(str(dim))}, {constant});")
        return lines

    def _given(self, result: Result) -> list[str]:
        memory = self.signature.writing.parameter(result.name)
        return self._tensors(memory, [*self._tensor(memory), *self._expressions(memory)])

    def allocations(self) -> list[ResultCode]:
        """Return the statements that check the sizes of each result that the kernel allocates."""
        return [
            ResultCode(
                identifier(result.name), str(result.type), position, True, self._allocation(result)
            )
            for position, result in enumerate(self.signature.results)
            if is_dependent(self.signature, result)
        ]

    def _allocation(self, result: Result) -> list[str]:
        type_ = result.tensor_type
        if type_.shape is None:
            return []
        name, constant = quote(result.name), f"{result.name}_type"
        lines = [f"allocated_dtype({name}, dtype, {dlpack_dtype(self.signature, type_)});"]
        dims = self.signature.result_dims(result)
        more = [
            f"variadic({self.variadics.index(str(d.name))})"
            for d in dims
            if isinstance(d, Variadic)
        ]
        rank = " + ".join([str(type_.shape.rank), *(f"{item}.count" for item in more)])
        lines.append(f"allocated_rank({name}, {constant}, ndim, {rank});")
        lines.append("int64_t axis = 0;")
        for dim in dims:
            if isinstance(dim, Variadic):
                item = f"variadic({self.variadics.index(str(dim.name))})"
                lines.append(f"for (int64_t i = 0; i < {item}.count; ++i) {{")
                size = f"{item}.sizes[i]"
                lines.append(f"  allocated({name}, {constant}, sizes, ndim, axis++, {size});")
                lines.append("}")
                continue
            if isinstance(dim.expression, Name) and dim.expression.name in self.dependent_dims:
                size = f"dependent_{dim.expression.name}_"
                lines.append(f"if ({size} == detail::unbound) {size} = sizes[axis];")
            else:
                size = self._cpp(dim.expression)
            lines.append(f"allocated({name}, {constant}, sizes, ndim, axis++, {size});")
        return lines

    @property
    def dependent_dims(self) -> tuple[str, ...]:
        """The dimensions whose sizes depend on data."""
        return self.signature.data_dependent

    def _constraint(self, constraint: Constraint) -> str:
        match constraint:
            case ValueRange(low, high, exclusive, start, above):
                reasons = [b.reason for b in constraint.bounds if b.reason is not None]
                words = [
                    self._limit(low),
                    self._limit(high),
                    _flag(exclusive),
                    "nullptr" if start is None else quote(start),
                    quote(", ".join(reasons)) if reasons else "nullptr",
                    _flag(above),
                ]
                return f"Range{{{', '.join(words)}}}"
            case Column(place, range_):
                return f"detail::Column{{{place}, {self._constraint(range_)}}}"
            case Order(first, last, strict):
                return f"detail::Order{{{self._end(first)}, {self._end(last)}, {_flag(strict)}}}"
            case Sum(total, shapes):
                return f"detail::Sum{{{self._end(total)}, {_flag(shapes)}}}"
            case PartStarts(of, shapes):
                return f"detail::Starts{{{quote(of)}, {_flag(shapes)}}}"
        raise AssertionError(constraint)

    def _end(self, bound: Bound | None) -> str:
        reason = bound.reason if bound is not None else None
        return f"{{{self._limit(bound)}, {'nullptr' if reason is None else quote(reason)}}}"

    def _limit(self, bound: Bound | None) -> str:
        if bound is None:
            return "Limit()"
        if isinstance(bound.value, float):
            return f"Limit(double{{{floating(bound.value)}}})"
        return f"Limit({self._cpp(bound.value)})"

    def _cpp(self, value: Expression) -> str:
        return expression(
            value,
            self._dim,
            lambda parameter, index: (
                f"raw.{identifier(parameter)}"
                if index is None
                else f"raw.{identifier(parameter)}.items[{index}]"
            ),
        )

    def _dim(self, name: str) -> str:
        return f"dim({self.dims.index(name)})"


def _flag(value: bool) -> str:
    return "true" if value else "false"


def _type(parameter: Parameter) -> str:
    return quote(str(parameter.tensor_type))


def _axes(shape: Shape) -> Iterator[tuple[str, Dim]]:
    """Yield each dimension with the C++ text of its axis."""
    for axis, dim in shape.axes():
        yield str(axis) if axis >= 0 else f"tensor.ndim - {-axis}", dim
