"""Read a `Signature` from a decorated function's annotations.

All mistakes in a declaration are found here, so that later code can rely on it.
"""

from __future__ import annotations

import inspect
import itertools
import keyword
from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import NoReturn

from opsmith.errors import DeclarationError
from opsmith.signature import checking, hints
from opsmith.signature.annotations import Philox, Selects
from opsmith.signature.constraints import Constraint, PartStarts
from opsmith.signature.hints import AnnotationProblem
from opsmith.signature.items import item_dims
from opsmith.signature.model import Signature
from opsmith.signature.parameters import (
    NO_DEFAULT,
    Parameter,
    ScalarType,
    SequenceType,
    TensorListType,
    TensorType,
)


def split_qualname(qualname: str) -> tuple[str, str]:
    """Return the parts of ``"ns::name"``.

    Raises:
        DeclarationError: the text has another form.
    """
    parts = qualname.split("::") if isinstance(qualname, str) else []
    if len(parts) != 2 or not all(part.isidentifier() and part.isascii() for part in parts):
        hint = ""
        if isinstance(qualname, str) and "." in qualname:
            hint = " (overloads are not declared: give each its own name)"
        raise DeclarationError(
            f"an operator is named 'namespace::name', both identifiers; got {qualname!r}{hint}"
        )
    for part in parts:
        # PyTorch parses a schema much like Python, and fails at keywords.
        if keyword.iskeyword(part):
            raise DeclarationError(
                f"{qualname}: {part!r} is a keyword of Python; choose another name"
            )
    return parts[0], parts[1]


def signature_of(
    function: Callable[..., object],
    qualname: str,
    *,
    mutates_args: Collection[str] = (),
    data_dependent: Sequence[str] = (),
    parallel_dims: Sequence[str] = (),
    summed_dims: Sequence[str] = (),
    linear_in: Sequence[str | Sequence[str]] = (),
    where: Sequence[str] = (),
    batch_invariant: Sequence[str] = (),
) -> Signature:
    """Read a signature from a function's annotations.

    Args:
        function: the decorated function; only its signature is read.
        qualname: ``namespace::name``.
        mutates_args: the parameters that the operator writes into.
        data_dependent: the dimensions of results whose sizes depend on data.
        parallel_dims: the dimensions along which each slice is computed on its own.
        summed_dims: the dimensions over which results without them are sums of slices' results.
        linear_in: the arguments, or groups of arguments, in which the results are linear.
        where: conditions on sizes and int arguments, such as ``H % K == 0``.
        batch_invariant: the `parallel_dims` along which a slice has the same bits in every batch.

    Raises:
        DeclarationError: the message quotes the annotation, and says what would be right.
    """
    namespace, name = split_qualname(qualname)

    def refuse(message: str) -> NoReturn:
        raise DeclarationError(f"{qualname}: {message}")

    for option, value in (
        ("mutates_args", mutates_args),
        ("data_dependent", data_dependent),
        ("parallel_dims", parallel_dims),
        ("summed_dims", summed_dims),
        ("linear_in", linear_in),
        ("batch_invariant", batch_invariant),
    ):
        if isinstance(value, str):
            refuse(f'{option}={value!r} is a string; write {option}=("{value}",)')
    where = (where,) if isinstance(where, str) else where

    python_signature = inspect.signature(function)
    annotations = hints.resolve(function, refuse)
    raw = {
        parameter.name: annotations.get(parameter.name, inspect.Parameter.empty)
        for parameter in python_signature.parameters.values()
    }
    stripped: dict[str, hints.Stripped] = {}
    for key, value in raw.items():
        try:
            stripped[key] = hints.strip(value)
        except AnnotationProblem as problem:
            refuse(f"parameter '{key}: {hints.show(value)}': {problem}")
    scalars = {
        key: part.base
        for key, part in stripped.items()
        if part.base is int or hints.is_int_sequence(part.base)
    }

    parameters = [
        _parameter(one, raw, stripped, scalars, frozenset(mutates_args), refuse)
        for one in python_signature.parameters.values()
    ]
    drawn = [parameter.name for parameter in parameters if parameter.drawn]
    if len(drawn) > 1:
        refuse(
            f"{drawn[0]!r} and {drawn[1]!r} are both a Philox; an operator takes one, and gives "
            "each use its own subsequence of it"
        )
    for one, next_ in itertools.pairwise(parameters):
        if next_.drawn and one.default is not NO_DEFAULT:
            refuse(
                f"parameter '{next_.name}: {next_.annotation}': every kernel has it, so that its "
                f"place in the schema is before the parameters with defaults; move it before "
                f"{one.name!r}"
            )
    known = {parameter.name for parameter in parameters}
    for mutated in mutates_args:
        if mutated not in known:
            refuse(
                f"mutates_args names {mutated!r}, which is not a parameter; there are "
                f"{', '.join(map(repr, sorted(known))) or 'none'}"
            )

    try:
        returned = annotations.get("return", inspect.Parameter.empty)
        results = hints.results(returned, scalars, raw)
    except AnnotationProblem as problem:
        refuse(f"the return annotation {problem}")
    if not results and not mutates_args:
        refuse("returns nothing and mutates nothing; name what it writes in mutates_args=(...)")

    signature = Signature(
        namespace,
        name,
        _told_of_each_other(parameters),
        tuple(results),
        tuple(data_dependent),
        tuple(parallel_dims),
        tuple(summed_dims),
        tuple((one,) if isinstance(one, str) else tuple(one) for one in linear_in),
        tuple(where),
        tuple(batch_invariant),
        inspect.getdoc(function) or "",
    )
    checking.check(signature, refuse)
    return signature


def _told_of_each_other(parameters: Sequence[Parameter]) -> tuple[Parameter, ...]:
    """Return `parameters` with each `PartStarts` marked as one of shapes or of sizes."""
    if not any(isinstance(c, PartStarts) for p in parameters for c in p.constraints):
        return tuple(parameters)
    rank = {
        p.name: p.type.shape.rank
        for p in parameters
        if isinstance(p.type, TensorType) and p.type.shape
    }

    def told(parameter: Parameter, constraint: Constraint) -> Constraint:
        if not isinstance(constraint, PartStarts):
            return constraint
        return replace(constraint, shapes=rank.get(constraint.of, 0) > rank.get(parameter.name, 0))

    return tuple(
        replace(p, constraints=tuple(told(p, constraint) for constraint in p.constraints))
        for p in parameters
    )


def _parameter(
    parameter: inspect.Parameter,
    raw: dict[str, object],
    stripped: dict[str, hints.Stripped],
    scalars: Collection[str],
    mutated: frozenset[str],
    refuse: Callable[[str], NoReturn],
) -> Parameter:
    name = parameter.name
    if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
        stars = "*" if parameter.kind is parameter.VAR_POSITIONAL else "**"
        refuse(
            f"parameter '{stars}{name}': an operator has a fixed list of parameters; write them "
            "out, or take a list (list[Tensor], Sequence[int])"
        )
    if not name.isascii():
        refuse(f"parameter {name!r}: a schema of PyTorch's has names in ASCII; choose another name")
    annotation = raw[name]
    if annotation is inspect.Parameter.empty:
        refuse(
            f'parameter {name!r} has no annotation; write what it is, e.g. Float[Tensor, "N C"], '
            "Tensor or int"
        )
    text = hints.show(annotation)
    try:
        part = stripped[name]
        type_ = hints.type_of(part.base, scalars)
        constraints = hints.constraints_of(part.constraints, type_, scalars)
        unspecified = hints.unspecified_of(part, type_)
    except AnnotationProblem as problem:
        refuse(f"parameter '{name}: {text}': {problem}")
    drawn = part.base is Philox
    default = NO_DEFAULT if parameter.default is inspect.Parameter.empty else parameter.default
    if drawn and default is None:
        default = NO_DEFAULT  # says to type checkers that a call may leave it out
    result = Parameter(
        name,
        type_,
        optional=part.optional,
        default=tuple(default) if isinstance(default, list) else default,
        keyword_only=parameter.kind is parameter.KEYWORD_ONLY,
        mutated=name in mutated,
        constraints=constraints,
        differentiable=part.differentiable,
        drawn=drawn,
        annotation=text,
        unspecified=unspecified,
    )
    for mark in part.marks:
        if isinstance(mark, Selects):
            refuse(
                f"parameter '{name}: {text}': {mark!r} is for results: it says which index is "
                "right. Return the index, also where an argument is written"
            )
    if not (result.differentiable or result.tensor_type):
        refuse(f"parameter '{name}: {text}': only tensors have gradients; leave the mark out")
    problem_text = _drawn_problem(result) or _default_problem(result) or _mutation_problem(result)
    if problem_text:
        refuse(f"parameter '{name}: {text}': {problem_text}")
    return result


def _drawn_problem(parameter: Parameter) -> str | None:
    if not parameter.drawn:
        return None
    if parameter.optional:
        return (
            "a call that leaves it out draws a value, so the kernel always has a value; leave "
            "'| None' out"
        )
    if parameter.default is not NO_DEFAULT:
        return "its only default is None, which draws; leave any other out"
    if parameter.constraints:
        return "any seed and offset are valid; leave the conditions out"
    if parameter.mutated:
        return "the generator advances by itself; leave it out of mutates_args"
    return None


_SCALARS: dict[str, type | tuple[type, ...]] = {
    "int": int,
    "float": (int, float),
    "bool": bool,
    "str": str,
}


def _default_problem(parameter: Parameter) -> str | None:
    default = parameter.default
    if default is NO_DEFAULT:
        return None
    if default is None:
        if parameter.optional:
            return None
        return f"the default None needs '{parameter.annotation} | None'"
    match parameter.type:
        case ScalarType(_, choices) if choices:
            fits = default in choices
        case ScalarType(kind):
            fits = isinstance(default, _SCALARS[kind]) and (
                kind == "bool" or not isinstance(default, bool)
            )
        case SequenceType("str") if default == ():
            return "PyTorch reads no empty list of strings as a default; leave the default out"
        case SequenceType(kind, length):
            fits = isinstance(default, tuple) and all(
                isinstance(item, _SCALARS[kind]) for item in default
            )
            if fits and length is not None and len(default) != length:
                return f"the default {default!r} has {len(default)} elements, expected {length}"
        case _:
            return f"the default {default!r} is not None; a tensor's default can only be None"
    return None if fits else f"the default {default!r} is not {parameter.type}"


def _mutation_problem(parameter: Parameter) -> str | None:
    if not parameter.mutated:
        return None
    if isinstance(parameter.type, TensorListType) and parameter.optional:
        agreed = ", ".join(f"'{dim}'" for _, dim in item_dims(parameter.shape))
        open_shape = f", with '...' in place of {agreed}, so that lengths may differ"
        return (
            "PyTorch cannot functionalise an optional list that is written into; leave '| None' "
            f"out{open_shape if agreed else ''}, and pass an empty list if there is nothing to "
            "write"
        )
    if parameter.tensor_type is not None:
        return None
    return "mutates_args names it, but only tensors and lists of tensors can be mutated"
