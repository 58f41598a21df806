"""Convert annotations to types: jaxtyping arrays, tensors, scalars, sequences, optionals."""

from __future__ import annotations

import collections.abc
import contextlib
import functools
import inspect
import types
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal, NoReturn, TypeVar, Union, get_args, get_origin

from opsmith.signature import checking
from opsmith.signature.annotations import (
    Annotation,
    Between,
    Extent,
    Index,
    Mark,
    NonDifferentiable,
    Philox,
    Positive,
    Selects,
    Sorted,
    Starts,
    Total,
    Unspecified,
)
from opsmith.signature.constraints import (
    Bound,
    Column,
    Constraint,
    Order,
    PartStarts,
    Sum,
    ValueRange,
)
from opsmith.signature.dtypes import ANY, COMMON, DTypes, known_dtypes, not_carried
from opsmith.signature.parameters import (
    Kind,
    Result,
    ScalarType,
    SequenceType,
    TensorListType,
    TensorType,
    Type,
    can_be_nan,
    is_integral,
    quoted,
)
from opsmith.signature.sizes import expressions
from opsmith.signature.sizes.expressions import ExpressionError
from opsmith.signature.sizes.shapes import ShapeError
from opsmith.signature.suggestions import annotation_slip
from opsmith.untyped import Hint

_KINDS: dict[object, Kind] = {int: "int", float: "float", bool: "bool", str: "str"}
_SEQUENCES = (list, tuple, collections.abc.Sequence)
_KNOWN = (
    'jaxtyping arrays of Tensor (Float[Tensor, "N C"]), Tensor, int, float, bool, str, '
    'Literal["sum", "mean"], '
    "tuple[int, int], Sequence[int], list[Tensor], and any of these with '| None'"
)
# Types that torch.library.custom_op accepts and opsmith does not, each with a remedy.
_REFUSED = {
    "dtype": "a dtype argument would make the result's dtype depend on a value; declare the "
    "result's dtype (Float32, or Float for that of the arguments), and convert outside",
    "device": "the operator runs on its tensors' device; take it from them",
    "layout": "operators here are dense",
    "memory_format": "operators here return contiguous tensors",
    "Generator": "declare opsmith.Philox, the seed and offset that calls draw from a generator; or "
    'draw the random numbers outside, and pass them as a tensor, as in Float[Tensor, "N"]',
    "complex": "no target carries complex scalars; pass real and imaginary part as two floats",
    "SymInt": "write int: it is symbolic while tracing by itself",
}


class AnnotationProblem(ValueError):
    """Raised for a wrong annotation; the caller adds which parameter or result has it."""


@dataclass(frozen=True)
class Stripped:
    """An annotation without ``Annotated`` and ``| None``, and the information in these."""

    base: Any  # as Python evaluates it: a class, one with parameters, or any object
    optional: bool
    constraints: tuple[Annotation, ...]
    marks: tuple[Mark, ...] = ()

    @property
    def differentiable(self) -> bool:
        """Return whether the tensor may have a gradient: no `NonDifferentiable` marks it."""
        return not any(isinstance(mark, NonDifferentiable) for mark in self.marks)


def resolve(function: Callable[..., object], refuse: Callable[[str], NoReturn]) -> dict[str, Hint]:
    """Return the annotations of `function`; strings are evaluated in the function's scope."""
    scope = dict(getattr(function, "__globals__", {}))
    with contextlib.suppress(TypeError, ValueError):
        scope.update(inspect.getclosurevars(function).nonlocals)
    resolved: dict[str, object] = {}
    for name, annotation in inspect.get_annotations(function).items():
        if isinstance(annotation, str):
            try:
                annotation = eval(annotation, scope)
            except Exception as error:
                slip = annotation_slip(error)
                why = f"{slip} ({error})" if slip else error
                refuse(f"the annotation of {name!r}, {annotation!r}, does not evaluate: {why}")
        resolved[name] = annotation
    return resolved


def strip(annotation: object) -> Stripped:
    """Remove ``Annotated[...]`` and ``| None`` from an annotation, in any order."""
    constraints: tuple[Annotation, ...] = ()
    marks: tuple[Mark, ...] = ()
    optional = False
    while True:
        origin = get_origin(annotation)
        if origin is Annotated:
            annotation, *metadata = get_args(annotation)
            known = [item for item in metadata if _is_known(item)]
            constraints += tuple(item for item in known if isinstance(item, Annotation))
            marks += tuple(item for item in known if isinstance(item, Mark))
            _refuse_repeated(known)
        elif origin in (Union, types.UnionType):
            members = [member for member in get_args(annotation) if member is not type(None)]
            if len(members) != 1 or len(members) == len(get_args(annotation)):
                raise AnnotationProblem(
                    f"{show(annotation)} is one of several types; an operator's argument has one "
                    "type, or that type '| None'"
                )
            optional = True
            annotation = members[0]
        else:
            return Stripped(annotation, optional, constraints, marks)


def _refuse_repeated(items: Sequence[Annotation | Mark]) -> None:
    for item in items:
        if items.count(item) > 1:
            raise AnnotationProblem(f"{item!r} stands there twice; write it once")


def _strip_result(annotation: object) -> Stripped:
    """Strip the annotation of a result."""
    part = strip(annotation)
    for constraint in part.constraints:
        if not isinstance(constraint, Sorted):
            raise AnnotationProblem(
                f"{constraint!r} is for arguments: nothing enforces a result's values; leave it "
                "out, or say it in the docstring"
            )
    for mark in part.marks:
        if isinstance(mark, Unspecified):
            raise AnnotationProblem(
                f"{mark!r} is for arguments; mark the argument whose values leave the result open"
            )
    return part


def is_int_sequence(base: object) -> bool:
    """Return whether `base` is ``tuple[int, int]``, ``Sequence[int]`` or ``list[int]``."""
    arguments = get_args(base)
    return (
        get_origin(base) in _SEQUENCES
        and bool(arguments)
        and all(argument in (int, ...) for argument in arguments)
    )


def type_of(base: object, scalars: Collection[str]) -> Type:
    """Return the opsmith type of an annotation without ``Annotated`` and ``| None``.

    Raises:
        AnnotationProblem: opsmith does not support the type.
    """
    if base in _KINDS if isinstance(base, collections.abc.Hashable) else False:
        return ScalarType(_KINDS[base])
    if base is Philox:
        return TensorType(DTypes(("int64",), "Int64"), checking.shape_of("2", scalars))
    if _is_array(base) or _is_tensor(base):
        return _tensor_type(base, scalars)
    origin, arguments = get_origin(base), get_args(base)
    if origin is Literal:
        return ScalarType("str", _choices(base, arguments))
    if origin in _SEQUENCES and arguments:
        return _sequence_type(base, origin, arguments, scalars)
    if base in _SEQUENCES:
        raise AnnotationProblem(f"{base.__name__} needs its elements' type, as in tuple[int, int]")
    name = getattr(base, "__name__", "")
    home = getattr(base, "__module__", "").split(".")[0]
    if name in _REFUSED and home in ("torch", "builtins"):
        raise AnnotationProblem(f"{show(base)} cannot be an argument: {_REFUSED[name]}")
    if isinstance(base, TypeVar):
        raise AnnotationProblem(
            f"{name} is a typing.TypeVar, which names no dtypes; write {name} = "
            f'opsmith.DtypeVar("{name}", Int32, Int64), and {name}[Tensor, "N"]'
        )
    raise AnnotationProblem(f"operators do not take this type; there are {_KNOWN}")


def _choices(base: object, arguments: tuple[Hint, ...]) -> tuple[str, ...]:
    if None in arguments:
        rest = ", ".join(quoted(item) for item in arguments if isinstance(item, str))
        raise AnnotationProblem(f"{show(base)}: write Literal[{rest}] | None")
    if not all(isinstance(item, str) for item in arguments):
        raise AnnotationProblem(
            f"{show(base)}: a Literal lists strings here; for numbers, write "
            "Annotated[int, Between(low, high)], and bool for True and False"
        )
    return tuple(dict.fromkeys(arguments))


def _is_array(base: object) -> bool:
    # Look at the attributes, since this package imports jaxtyping late.
    return isinstance(base, type) and hasattr(base, "array_type") and hasattr(base, "dim_str")


def _is_tensor(base: object) -> bool:
    # Compare names, since this package does not import torch.
    return (
        isinstance(base, type)
        and base.__name__ == "Tensor"
        and base.__module__.split(".")[0] == "torch"
    )


def _tensor_type(base: Hint, scalars: Collection[str]) -> TensorType:
    if not _is_array(base):
        return TensorType(ANY, None)
    if not _is_tensor(base.array_type):
        raise AnnotationProblem(f"is an array of {show(base.array_type)}; write torch.Tensor there")
    try:
        shape = checking.shape_of(base.dim_str, scalars)
    except ShapeError as error:
        raise AnnotationProblem(str(error)) from None
    label = base.__name__.partition("[")[0]
    declared = tuple(base.dtypes) if isinstance(base.dtypes, list | tuple) else None
    by_jaxtyping = base.dtype.__module__.split(".")[0] == "jaxtyping"
    return TensorType(_dtypes(declared, label, by_jaxtyping), shape)


@functools.lru_cache(64)  # operators, and whole packages, use few kinds of tensors
def _dtypes(declared: tuple[str, ...] | None, label: str, by_jaxtyping: bool) -> DTypes:
    """Return the supported dtypes of a class of arrays; `declared` is `None` for any dtype."""
    names = COMMON if declared is None else known_dtypes(declared)
    if len(names) > 1 and by_jaxtyping:
        # PyTorch can store the other dtypes, but hardly computes in them: they must be named
        # explicitly.
        names = tuple(name for name in names if name in COMMON)
    if not names:
        raise AnnotationProblem(not_carried(label, declared or ()))
    return DTypes(names, label, own=len(names) > 1 and not by_jaxtyping)


def _sequence_type(
    base: object, origin: object, arguments: tuple[object, ...], scalars: Collection[str]
) -> TensorListType | SequenceType:
    element, *rest = arguments
    fixed = origin is tuple and rest != [...]
    if _is_array(element) or _is_tensor(element):
        if fixed:
            raise AnnotationProblem(
                f"{show(base)}: write a parameter for each of a fixed number of tensors, or "
                "list[...] for any number"
            )
        return TensorListType(_tensor_type(element, scalars))
    if get_origin(element) in (Union, types.UnionType):
        tensors = any(_is_array(one) or _is_tensor(one) for one in get_args(element))
        instead = "; pass those that are there, and list[int] of their places" if tensors else ""
        raise AnnotationProblem(f"{show(base)}: elements cannot be optional{instead}")
    if get_origin(element) is Annotated:
        raise AnnotationProblem(
            f"{show(base)}: a condition on all elements stands outside, as in "
            "Annotated[tuple[int, int], Between(1, 9)]"
        )
    if element is Philox:
        raise AnnotationProblem(
            f"{show(base)}: an operator takes one seed and offset; give each use its own "
            "subsequence"
        )
    kind = _KINDS.get(element) if isinstance(element, collections.abc.Hashable) else None
    if kind is None:
        raise AnnotationProblem(f"{show(base)}: elements are int, float, bool, str or tensors")
    if fixed:
        if any(argument is not element for argument in arguments):
            raise AnnotationProblem(f"{show(base)}: every element has one type")
        return SequenceType(kind, len(arguments))
    return SequenceType(kind, None)


def _result_names(count: int, taken: Collection[str]) -> list[str]:
    """Return the names of results: ``out``, or ``out0``, ``out1`` and so on.

    If a parameter has such a name, they are ``result``, or ``result0``, ``result1`` and so on.
    """
    every = [
        [stem] if count == 1 else [f"{stem}{position}" for position in range(count)]
        for stem in ("out", "result")
    ]
    return next((names for names in every if not set(names) & set(taken)), every[0])


def results(annotation: object, scalars: Collection[str], taken: Collection[str]) -> list[Result]:
    """Return the results that a return annotation declares.

    Args:
        scalars: the parameters that are ints or sequences of ints.

    Raises:
        AnnotationProblem: the message begins with the annotation.
    """
    if annotation is inspect.Parameter.empty:
        raise AnnotationProblem("is missing; write the result's shape, or None")
    if annotation is None or annotation is type(None):
        return []
    members: tuple[object, ...] = (annotation,)
    if get_origin(annotation) is tuple:
        members = get_args(annotation)
        if len(members) == 2 and members[1] is ...:
            raise AnnotationProblem(
                f"{show(annotation)}: write list[...] for any number of results"
            )
    found: list[Result] = []
    names = _result_names(len(members), taken)
    for position, member in enumerate(members):
        try:
            part = _strip_result(member)
            if part.base is Philox:
                raise AnnotationProblem(
                    "a seed and offset are drawn for an argument only; for a result, "
                    'write Int64[Tensor, "2"]'
                )
            type_ = type_of(part.base, scalars)
            constraints = constraints_of(part.constraints, type_, scalars)
        except AnnotationProblem as problem:
            raise AnnotationProblem(f"{show(member)}: {problem}") from None
        if part.optional:
            raise AnnotationProblem(
                f"{show(member)}: a result cannot be optional, since a compiled graph fixes its "
                "results; give it a size that an argument makes 0, as in "
                'Float[Tensor, "N*{wanted}"] with wanted: Annotated[int, Between(0, 1)], or '
                "declare two operators"
            )
        if not isinstance(type_, TensorType | TensorListType):
            raise AnnotationProblem(
                f"{show(member)}: a result is a tensor; return a 0-dimensional one, "
                f'as in Float[Tensor, ""]'
            )
        selects = [mark for mark in part.marks if isinstance(mark, Selects)]
        if len(selects) > 1:
            raise AnnotationProblem(f"{show(member)}: an index selects by one value; give one")
        found.append(
            Result(
                names[position],
                type_,
                part.differentiable,
                constraints,
                selects[0] if selects else None,
                show(member),
            )
        )
    return found


def _is_known(item: object) -> bool:
    """Return whether an item of ``Annotated`` declares something; `False` for documentation."""
    classes = (*get_args(Annotation), *get_args(Mark))
    if isinstance(item, type) and item in classes:
        raise AnnotationProblem(f"{item.__name__} is a class; write {item.__name__}(...)")
    if isinstance(item, classes) or _is_documentation(item):
        return isinstance(item, classes)
    *names, last = (kind.__name__ for kind in classes)
    raise AnnotationProblem(
        f"{item!r} declares nothing that opsmith understands; Annotated may have "
        f"{', '.join(names)} and {last} of opsmith, and typing_extensions.Doc. Leave it out, or "
        "say it in the docstring"
    )


def _is_documentation(item: object) -> bool:
    """Return whether an item is a `typing_extensions.Doc`, which does not constrain values."""
    kind = type(item)  # compare names: opsmith does not need that package
    return (kind.__module__, kind.__name__) == ("typing_extensions", "Doc")


def unspecified_of(part: Stripped, type_: Type) -> tuple[str, ...]:
    """Return the values for which a parameter leaves results open, as `Unspecified.kinds`.

    Raises:
        AnnotationProblem: the mark says nothing, or the parameter cannot hold such values.
    """
    found: dict[str, None] = {}
    for mark in part.marks:
        if not isinstance(mark, Unspecified):
            continue
        for name, value in (("nan", mark.nan), ("inf", mark.inf)):
            if not isinstance(value, bool):
                raise AnnotationProblem(f"{mark!r}: {name} is {value!r}, expected True or False")
        if not mark.kinds:
            raise AnnotationProblem("Unspecified() leaves nothing open; give nan=True, inf=True")
        if not isinstance(type_, TensorType | TensorListType):
            raise AnnotationProblem(f"{mark!r} is for tensors; leave it out")
        if not can_be_nan(type_):
            raise AnnotationProblem(f"{mark!r}: {type_} holds no NaN and no infinity; leave it out")
        found |= dict.fromkeys(mark.kinds)
    return tuple(found)


def constraints_of(
    items: Sequence[Annotation], type_: Type, scalars: Collection[str]
) -> tuple[Constraint, ...]:
    """Return the constraints in ``Annotated``, with their texts parsed."""
    found = [_constraint(item, type_, scalars) for item in items]
    if any(isinstance(item, Total) for item in items) and not any(
        isinstance(item, Between | Index | Extent | Positive) for item in items
    ):
        # Sizes are not negative. Check this first, so that only sizes are added up.
        found.insert(0, ValueRange(Bound(expressions.Integer(0)), None))
    return tuple(found)


def _constraint(item: Annotation, type_: Type, scalars: Collection[str]) -> Constraint:
    def bound(value: str | float | None) -> Bound | None:
        return None if value is None else some(value)

    def some(value: str | float) -> Bound:
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise AnnotationProblem(f"{item!r}: a bound is a number or an expression")
        if isinstance(value, int):
            return Bound(expressions.Integer(value))
        if isinstance(value, float):
            return Bound(value)
        try:
            return Bound(expressions.parse(value, scalars))
        except ExpressionError as error:
            raise AnnotationProblem(f"{item!r}: {error}") from None

    match item:
        case Index(high):
            range_ = ValueRange(bound(0), bound(high), exclusive=True)
            return range_ if item.column is None else Column(item.column, range_)
        case Between(low, high):
            if low is None and high is None:
                raise AnnotationProblem("Between() bounds nothing; give low, high or both")
            return ValueRange(bound(low), bound(high))
        case Positive():
            if is_integral(type_):
                return ValueRange(bound(1), None)
            return ValueRange(bound(0), None, above=True)
        case Extent(start, high):
            return ValueRange(bound(0), bound(high), start=start)
        case Sorted(first, last, strict):
            return Order(bound(first), bound(last), strict)
        case Total(total, of):
            if of not in ("sizes", "shapes"):
                raise AnnotationProblem(f"{item!r}: expected of='sizes' or of='shapes'")
            return Sum(some(total), of == "shapes")
        case Starts(of):
            return PartStarts(of)


def show(annotation: Any) -> str:  # under another name than Any, mypy mistakes get_origin
    """Return `annotation` as the user may have written it."""
    if isinstance(annotation, str):
        return annotation
    if annotation is None or annotation is type(None):
        return "None"
    if annotation is ...:
        return "..."
    if _is_array(annotation):
        label = annotation.__name__.partition("[")[0]
        return f'{label}[{show(annotation.array_type)}, "{annotation.dim_str}"]'
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        marks = (show(item) if isinstance(item, type) else repr(item) for item in arguments[1:])
        return f"Annotated[{', '.join([show(arguments[0]), *marks])}]"
    if origin in (Union, types.UnionType):
        return " | ".join(show(argument) for argument in arguments)
    if origin is Literal:
        shown = (quoted(item) if isinstance(item, str) else repr(item) for item in arguments)
        return f"Literal[{', '.join(shown)}]"
    if origin is not None:
        name = getattr(origin, "__name__", str(origin))
        return f"{name}[{', '.join(show(argument) for argument in arguments)}]"
    return getattr(annotation, "__name__", None) or repr(annotation)
