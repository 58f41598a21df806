"""Provide calls to trace a derivative in: the author's cases, and made-up ones."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Iterator, Mapping
from typing import Any

import torch

from opsmith.operators import Operator
from opsmith.operators.core.arguments import DTYPES, case_dtype, describe
from opsmith.signature.binding import bind
from opsmith.signature.dtype_variables import parts
from opsmith.signature.parameters import NO_DEFAULT, Parameter, ScalarType, SequenceType
from opsmith.signature.sizes.expressions import evaluate
from opsmith.signature.sizes.shapes import Fixed, Variadic
from opsmith.signature.solving.fitting import Fitting

_SIZES = (5, 7, 11, 13, 17, 19, 23, 29)


def generic_dtypes(operator: Operator) -> list[str]:
    """Return the generic dtypes to trace in, float32 first."""
    generic = operator.signature.generic
    names = generic.names if generic is not None else ("float32",)
    return sorted(names, key=lambda name: "float32" not in parts(name))


def registered(operator: Operator, name: str) -> list[dict[str, Any]]:
    """Return the author's cases in one dtype."""
    from opsmith.targets.jax.package.derivative import small_sizes

    dtype = case_dtype(operator.signature, name)
    cases = (case for make in operator.cases for case in make(dtype, 0))
    given = [operator.arguments((), dict(case)) for case in cases]
    # A size of 0 or 1 takes special paths, so the general cases come first.
    return sorted(given, key=lambda arguments: len(small_sizes(operator.signature, arguments)))


def made_up(operator: Operator, name: str) -> Iterator[dict[str, Any]]:
    """Make up calls from the declaration, unless only registered cases are valid."""
    if operator.only_registered_cases:
        return
    signature = operator.signature
    free = [p for p in signature.parameters if p.optional or _is_bool(p) or _choices(p)][:3]
    choices = [_values(parameter) for parameter in free]
    ranks = range(5) if signature.variadic_dims else range(1)
    for rank in (2, 1, 3, 0, 4) if len(ranks) > 1 else ranks:
        for chosen in itertools.product(*choices):
            picked = {p.name: value for p, value in zip(free, chosen, strict=True)}
            with contextlib.suppress(Exception):  # Sizes that contradict each other.
                yield _made(operator, name, rank, picked)
    # A size of 1 may take a path of its own.
    for dim in signature.dims:
        with contextlib.suppress(Exception):
            yield _made(operator, name, 2, {}, single=dim)


def _is_bool(parameter: Parameter) -> bool:
    return parameter.type == ScalarType("bool")


def _choices(parameter: Parameter) -> tuple[str, ...]:
    return parameter.type.choices if isinstance(parameter.type, ScalarType) else ()


def _values(parameter: Parameter) -> list[Any]:
    """Return the values of a bool or a choice; for others, whether the argument is present."""
    if _is_bool(parameter):
        return [False, True]
    if _choices(parameter):
        return [*_choices(parameter), *([None] if parameter.optional else [])]
    return [True, False]


def _made(
    operator: Operator,
    dtype: str,
    rank: int,
    picked: Mapping[str, Any],
    single: str | None = None,
) -> dict[str, Any]:
    signature = operator.signature
    arguments: dict[str, Any] = {}
    for parameter in signature.parameters:
        if parameter.tensor_type is not None:
            continue
        arguments[parameter.name] = _number(parameter, picked)
    dims: dict[str, int] = {} if single is None else {single: 1}
    fitting = Fitting(signature)
    for i, name in enumerate(fitting.order((*dims, *arguments))):
        dims[name] = fitting.sizes(name, _SIZES[i % len(_SIZES) :], dims, arguments)[0]
    for parameter in signature.tensors:
        type_ = parameter.tensor_type
        if parameter.optional and not picked.get(parameter.name, True):
            arguments[parameter.name] = None
            continue
        assert type_ is not None
        sizes: list[int] = []
        for dim in parameter.dims:
            if isinstance(dim, Fixed):
                sizes.append(evaluate(dim.expression, dims, arguments))
            elif isinstance(dim, Variadic):
                sizes += _SIZES[-rank:] if rank else []
            else:
                sizes.append(3)
        own = signature.dtype_in(type_, dtype) or next(iter(parts(dtype)))
        tensor = torch.zeros(sizes, dtype=DTYPES[own])
        arguments[parameter.name] = [tensor] if parameter.is_tensor_list else tensor
    bind(signature, describe(arguments, signature))
    return {name: arguments[name] for name in signature.by_name}


def _number(parameter: Parameter, picked: Mapping[str, Any]) -> Any:
    if _is_bool(parameter) or _choices(parameter):
        return picked.get(parameter.name, _values(parameter)[0])
    if not picked.get(parameter.name, True):
        return None
    if parameter.default is not NO_DEFAULT and parameter.default is not None:
        return parameter.default
    made: dict[str, Any] = {"int": 2, "float": 0.5, "bool": True, "str": ""}
    type_ = parameter.type
    if isinstance(type_, SequenceType):
        return [made[type_.kind]] * (2 if type_.length is None else type_.length)
    assert isinstance(type_, ScalarType)
    return made[type_.kind]
