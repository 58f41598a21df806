"""Check that the parts of a signature agree; each message says what would be right."""

from __future__ import annotations

import inspect
import itertools
from collections.abc import Callable
from typing import NoReturn

from opsmith.signature.annotations import Selects
from opsmith.signature.claims import bound_dims, check_claims
from opsmith.signature.constraints import Column, Constraint, Order, PartStarts, Sum, ValueRange
from opsmith.signature.dtypes import COMPLEX, DTypes
from opsmith.signature.equations import unsolvable
from opsmith.signature.items import check_items, item_hint
from opsmith.signature.model import Signature
from opsmith.signature.parameters import (
    Parameter,
    Result,
    ScalarType,
    SequenceType,
    TensorListType,
    TensorType,
    is_integral,
)
from opsmith.signature.sizes import expressions
from opsmith.signature.sizes.conditions import SizeComparison, contradict, decided
from opsmith.signature.sizes.shapes import Fixed, Unnamed, Variadic

Refuse = Callable[[str], NoReturn]


def check(signature: Signature, refuse: Refuse) -> None:
    """Call `refuse` with the first contradiction in `signature`, if there is one."""
    check_items(signature, refuse)
    _names(signature, refuse)
    _dtypes(signature, refuse)
    for parameter in signature.parameters:
        _parameter_shape(signature, parameter, refuse)
        for constraint in parameter.constraints:
            owner = f"parameter '{parameter.name}: {parameter.annotation}'"
            _constraint(signature, parameter, constraint, owner, refuse)
    for result in signature.results:
        _result_shape(signature, result, refuse)
        _result_values(signature, result, refuse)
    _conditions(signature, refuse)
    check_claims(signature, refuse)


def _names(signature: Signature, refuse: Refuse) -> None:
    # Dimensions, parameters and results are members of one C++ struct.
    for parameter in signature.parameters:
        if parameter.name in signature.dim_sources or parameter.name in signature.data_dependent:
            refuse(f"{parameter.name!r} is both a parameter and a dimension; rename one of them")
    for result in signature.results:
        if result.name in signature.by_name:
            refuse(
                f"parameter {result.name!r} has the name that the result has in a kernel; "
                "rename the parameter"
            )
        if result.name in signature.dim_sources:
            refuse(f"dimension {result.name!r} has the name of a result; rename the dimension")
    variadic = signature.variadic_dims
    for type_, owner in _shapes(signature):
        for dim in type_.shape.dims if type_.shape is not None else ():
            if isinstance(dim, Fixed):
                for name in sorted(expressions.names(dim.expression) & variadic):
                    refuse(
                        f"{owner} {type_}: {name!r} is one dimension here and any number of "
                        f"dimensions ('*{name}') elsewhere; use two names"
                    )


def _shapes(signature: Signature) -> list[tuple[TensorType, str]]:
    found = [
        (p.tensor_type, f"parameter {p.name!r}") for p in signature.parameters if p.tensor_type
    ] + [(r.tensor_type, "the result") for r in signature.results]
    return [(type_, owner) for type_, owner in found if type_.shape is not None]


def _dtypes(signature: Signature, refuse: Refuse) -> None:
    named: dict[str, DTypes] = {}
    for type_, owner in _shapes(signature):
        other = named.setdefault(type_.dtypes.label, type_.dtypes)
        if other != type_.dtypes:
            refuse(
                f"{owner} {type_}: another {type_.dtypes.label} in this declaration covers "
                f"{', '.join(other.names)}, and this one {', '.join(type_.dtypes.names)}; give one "
                "of the classes another name"
            )
    for variable in signature.dtype_variables:
        if not variable.names:
            labels = sorted({class_.label for class_ in variable.classes})
            refuse(
                f"{' and '.join(labels)} have no dtype in common, and tensors of jaxtyping's "
                "overlapping names share one dtype; make one of them concrete (Float32, Int64, …), "
                'or a variable of its own: Ids = opsmith.DtypeVar("Ids", Int32, Int64)'
            )
    bound = {
        signature.variable_position(p.tensor_type)
        for p in signature.parameters
        if p.tensor_type and not p.optional
    }
    for result in signature.results:
        type_ = result.tensor_type
        if type_.shaped_generic and signature.variable_position(type_) not in bound:
            refuse(
                f"the result {type_} has a generic dtype, but no argument fixes it in every call "
                "(one that is optional may be absent); write a concrete one "
                f"(Float32, …) or take a {type_.dtypes.label} argument"
            )


def _parameter_shape(signature: Signature, parameter: Parameter, refuse: Refuse) -> None:
    own = _own(signature, parameter)
    for expression in parameter.computed:
        dim = expressions.text(expression)
        _readable(
            signature,
            expression,
            own,
            f"parameter '{parameter.name}: {parameter.annotation}': dimension '{dim}'",
            refuse,
            unsolvable(expression, signature.dim_sources.keys()),
            f". Or give '{dim}' a name of its own, and write the others in terms of that",
        )


def _own(signature: Signature, parameter: Parameter) -> frozenset[str]:
    """Return the names that are known wherever this argument is present."""
    alone = parameter.shape.binds() if parameter.shape is not None else ()
    solved = [e.name for e in signature.equations if e.parameter == parameter.name]
    return frozenset((*alone, *solved))


def _readable(
    signature: Signature,
    expression: expressions.Expression,
    also: frozenset[str],
    owner: str,
    refuse: Refuse,
    reason: str = "",
    remedy: str = "",
) -> None:
    for name in sorted(expressions.names(expression)):
        if name in signature.variadic_dims:
            refuse(f"{owner} reads '*{name}', which stands for any number of dimensions")
        if name not in signature.dim_sources:
            refuse(
                f"{owner} reads {name!r}, which no argument binds"
                f"{item_hint(signature, name) or reason}; a dimension is bound "
                "where it stands alone in some argument's shape, or is the one unknown of a size "
                f"like 2*C. Bound are: {bound_dims(signature)}{remedy}"
                f"{_number_called(signature, name)}"
            )
        if name not in signature.certain_dims and name not in also:
            source = signature.dim_sources[name]
            refuse(
                f"{owner} reads {name!r}, which only {source!r} binds, and that may be absent; "
                "bind it in a required argument too"
            )
    for scalar in expressions.scalars_of(expression):
        parameter = signature.by_name[scalar.parameter]
        shown = expressions.text(scalar)
        if parameter.optional:
            refuse(f"{owner} reads {shown!r}, which may be None; make the argument required")
        match parameter.type, scalar.index:
            case ScalarType(), int():
                refuse(f"{owner} reads {shown!r}, but {scalar.parameter!r} is a single int")
            case SequenceType(), None:
                refuse(f"{owner} reads {shown!r}, a sequence; name one element, {shown}[0]")
            case SequenceType(_, length), int(index) if length is None:
                refuse(
                    f"{owner} reads {shown!r}, but {scalar.parameter!r} may have any length; "
                    f"declare it as tuple[{', '.join(['int'] * (index + 1))}]"
                )
            case SequenceType(_, int(length)), int(index) if index >= length:
                refuse(f"{owner} reads {shown!r}, but {scalar.parameter!r} has {length} elements")


def _number_called(signature: Signature, name: str) -> str:
    """Return a hint that quotes the int argument that `name` may be meant for; else empty."""
    for parameter in signature.parameters:
        if parameter.name.lower() == name.lower() and parameter.type == ScalarType("int"):
            return f". The value of the argument {parameter.name!r} is written {{{parameter.name}}}"
    return ""


def _constraint(
    signature: Signature, parameter: Parameter, constraint: Constraint, owner: str, refuse: Refuse
) -> None:
    if parameter.is_tensor_list and constraint.reads:
        refuse(
            f"{owner}: a constraint on each tensor of a list cannot read {constraint.reads[0]!r}; "
            "leave it out"
        )
    match constraint:
        case ValueRange():
            _range(signature, parameter, constraint, owner, refuse)
        case Column(place):
            _column(parameter, place, owner, refuse)
        case Order():
            _line(parameter, "Sorted", owner, refuse)
            if not _numeric(parameter):
                refuse(f"{owner}: Sorted is for ints and floats")
        case Sum(shapes=shapes):
            _line(parameter, "Total", owner, refuse)
            if not is_integral(parameter.type):
                refuse(f"{owner}: Total is for integers")
            dims = parameter.dims[-2:]
            if shapes and (len(dims) < 2 or isinstance(dims[0], Variadic)):
                refuse(
                    f"{owner}: Total(of='shapes') needs a tensor of 2 dimensions or more, whose "
                    'last one holds a shape, as in Int64[Tensor, "L 2"]'
                )
        case PartStarts():
            _starts(signature, parameter, constraint, owner, refuse)
    own = _own(signature, parameter)
    for expression in constraint.expressions():
        _readable(signature, expression, own, owner, refuse)


def _numeric(parameter: Parameter) -> bool:
    match parameter.type:
        case TensorType(dtypes) | TensorListType(TensorType(dtypes)):
            return not set(dtypes.names) & {"bool", *COMPLEX}
        case ScalarType(kind) | SequenceType(kind):
            return kind in ("int", "float")


def _line(parameter: Parameter, what: str, owner: str, refuse: Refuse) -> None:
    """Refuse an argument without a last dimension to span, or whose values may exceed int64."""
    ends = bool(parameter.dims) and not isinstance(parameter.dims[-1], Variadic)
    if not (parameter.is_sequence or ends):
        refuse(
            f"{owner}: {what} looks along the last dimension, and the annotation names none; "
            "it is for sequences, and for tensors whose shape ends with one dimension"
        )
    if parameter.tensor_type is not None and "uint64" in parameter.tensor_type.dtypes:
        refuse(f"{owner}: {what} is not for uint64; take int64")


def _column(parameter: Parameter, place: int, owner: str, refuse: Refuse) -> None:
    called = f"Index(column={place!r})"
    if not isinstance(place, int) or isinstance(place, bool) or place < 0:
        refuse(f"{owner}: {called}: columns are counted from 0")
    if parameter.tensor_type is None or not _numeric(parameter):
        refuse(f"{owner}: {called} is for tensors of ints and floats")
    _line(parameter, called, owner, refuse)
    match parameter.dims[-1]:
        case Fixed(expressions.Integer(width)) if place >= width:
            refuse(f"{owner}: {called}: there are {width} columns, counted from 0")
        case Unnamed():
            refuse(f"{owner}: {called}: give the last dimension a name or a number")


def _range(
    signature: Signature, parameter: Parameter, range_: ValueRange, owner: str, refuse: Refuse
) -> None:
    if (range_.exclusive or range_.start) and not is_integral(parameter.type):
        column = "; of floats, a column may hold an index: Index(..., column=0)"
        refuse(f"{owner}: Index and Extent are for integers{'' if range_.start else column}")
    if not _numeric(parameter):
        refuse(f"{owner}: {'Positive' if range_.above else 'Between'} is for ints and floats")
    if range_.start is None:
        return
    start = _read(signature, parameter, range_.start, f"Extent(start={range_.start!r})", refuse)
    assert isinstance(parameter.type, TensorType)
    if (start.shape, start.dtypes) != (parameter.type.shape, parameter.type.dtypes):
        refuse(
            f"{owner}: Extent(start={range_.start!r}) needs an argument of the same type, "
            f"but that is {start}"
        )


def _starts(
    signature: Signature, parameter: Parameter, starts: PartStarts, owner: str, refuse: Refuse
) -> None:
    _line(parameter, "Starts", owner, refuse)
    called = f"Starts(of={starts.of!r})"
    of = _read(signature, parameter, starts.of, called, refuse)
    if starts.of == parameter.name:
        refuse(f"{owner}: {called} names the argument itself")
    assert isinstance(parameter.type, TensorType) and parameter.type.shape is not None
    if not is_integral(parameter.type) or not is_integral(of) or parameter.type.dtypes.generic:
        refuse(f"{owner}: {called} is for integer tensors of one dtype, and that is {of}")
    dims = of.shape.dims[:-1] if of.shape and starts.shapes else of.shape.dims if of.shape else ()
    if dims != parameter.type.shape.dims or of.dtypes != parameter.type.dtypes:
        refuse(
            f"{owner}: {called} needs an argument of the same type, or with one dimension more at "
            f"the end (the shapes of the parts), but that is {of}"
        )


def _read(
    signature: Signature, parameter: Parameter, name: str, called: str, refuse: Refuse
) -> TensorType:
    """Return the type of the required tensor argument that another argument's constraint reads."""
    read = signature.by_name.get(name)
    if (
        read is None
        or not isinstance(read.type, TensorType)
        or not isinstance(parameter.type, TensorType)
        or read.optional
    ):
        refuse(
            f"parameter '{parameter.name}: {parameter.annotation}': {called} must name a required "
            "tensor argument"
        )
    return read.type


def _result_shape(signature: Signature, result: Result, refuse: Refuse) -> None:
    for dim in result.dims:
        match dim:
            case Unnamed() | Variadic(None):
                refuse(
                    f"the result {result.type}: '{dim}' says no size; name the dimension, or "
                    "return a plain Tensor and write register_fake"
                )
            case Variadic(str(name)) if name not in signature.dim_sources:
                hint = item_hint(signature, name)
                refuse(f"the result {result.type}: no argument binds '*{name}'{hint}")
            case Fixed(expressions.Name(name)) if name in signature.data_dependent:
                continue
            case Fixed(expressions.Name(name)) if name not in signature.dim_sources:
                refuse(
                    f"the result {result.type}: no argument binds {name!r}"
                    f"{item_hint(signature, name)}. Bound are: {bound_dims(signature)}. "
                    f'If only the data decides its size, say so: data_dependent=("{name}",)'
                )
            case Fixed(expression):
                _readable(signature, expression, frozenset(), f"the result {result.type}", refuse)


def _result_values(signature: Signature, result: Result, refuse: Refuse) -> None:
    owner = f"the result {result.annotation}"
    lists = [one.type for one in signature.results if not isinstance(one.type, TensorType)]
    if lists and (result.constraints or result.selects):
        refuse(
            f"{owner}: what a result's values are is declared of tensors, and beside {lists[0]} no "
            "position is fixed; return tensors"
        )
    for constraint in result.constraints:
        _constraint(signature, Parameter(result.name, result.type), constraint, owner, refuse)
    selects = result.selects
    if selects is None:
        return
    if not isinstance(result.type, TensorType) or not is_integral(result.type):
        refuse(f'{owner}: {selects!r} is for a tensor of indices, as in Int64[Tensor, "N"]')
    if isinstance(selects.by, str):
        values = _values_of(signature, result, selects.by, owner, refuse)
        _selected(result.type, values, selects, owner, refuse)
        return
    if not callable(selects.by):
        refuse(f"{owner}: Selects takes a name or a function, and that is {selects.by!r}")
    for parameter in inspect.signature(selects.by).parameters.values():
        if parameter.name not in signature.by_name:
            refuse(
                f"{owner}: {selects!r} takes {parameter.name!r}, which is no argument of the "
                f"operator; there are {', '.join(map(repr, signature.by_name))}"
            )


def _values_of(
    signature: Signature, result: Result, name: str, owner: str, refuse: Refuse
) -> TensorType:
    """Return the type of the argument or result by whose values a result selects."""
    others = {one.name: one.type for one in signature.results if one is not result}
    given = {one.name: one.type for one in signature.tensors if not one.optional}
    found = {**others, **given}.get(name)
    if not isinstance(found, TensorType):
        known = [n for n, type_ in {**given, **others}.items() if isinstance(type_, TensorType)]
        refuse(
            f"{owner}: {result.selects!r} must name a required tensor argument or another result; "
            f"there are {', '.join(map(repr, known)) or 'none'}. Of values that are neither, give "
            "the function that computes them from the arguments"
        )
    return found


def _selected(
    index: TensorType, values: TensorType, selects: Selects, owner: str, refuse: Refuse
) -> None:
    """Refuse an index whose dimensions are not those of the values, without the selected one."""
    if index.shape is None or values.shape is None:
        return
    dims, own = list(map(str, values.shape.dims)), list(map(str, index.shape.dims))
    position = selects.dim % len(dims) if selects.dim in range(-len(dims), len(dims)) else None
    if position is None or isinstance(values.shape.dims[position], Variadic):
        refuse(f"{owner}: {selects!r}: {values} has no single dimension dim={selects.dim!r}")
    rest = dims[:position] + dims[position + 1 :]
    along = len(own) == len(dims) and not isinstance(index.shape.dims[position], Variadic)
    if own != rest and not (along and own[:position] + own[position + 1 :] == rest):
        several = " ".join([*dims[:position], "K", *dims[position + 1 :]])
        refuse(
            f"{owner}: {selects!r} selects along {dims[position]!r} of {values}, so that the index "
            f'has the dimensions "{" ".join(rest)}", or "{several}" for K of each'
        )


def _conditions(signature: Signature, refuse: Refuse) -> None:
    for text in signature.where:
        if not isinstance(text, str):
            refuse(f'where has {text!r}, expected a text such as "H % K == 0"')
    try:
        conditions = signature.conditions
    except expressions.ExpressionError as error:
        refuse(f"where: {error}")
    for condition in conditions:
        owner = f"where={condition.text!r}"
        for expression in condition.expressions():
            for name in sorted(expressions.names(expression)):
                named = signature.by_name.get(name)
                if named is not None:
                    refuse(f"{owner} reads {name!r}, which is not an int: {named.annotation}")
                if name in signature.data_dependent:
                    refuse(f"{owner} reads {name!r}, which only the call's result tells")
            _readable(signature, expression, frozenset(), owner, refuse)
        for comparison in condition.comparisons:
            known = decided(comparison)
            if known is not None:
                refuse(f"{owner} is always {str(known).lower()}, whatever the sizes are")
            match comparison:
                case SizeComparison(expressions.Name(name), "==", expressions.Integer(value)):
                    refuse(f"{owner}: write {value} in place of {name} in the shapes")
    for one, other in itertools.combinations(conditions, 2):
        if contradict(one, other):
            refuse(f"where: no sizes satisfy both {one.text!r} and {other.text!r}")
