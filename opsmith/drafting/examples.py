"""Find a call that an operator accepts: the user's example, or one found by trying."""

from __future__ import annotations

import ast
import inspect
import itertools
import time
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import torch

from opsmith.drafting.subject import DraftArgument, Origin, Spec, with_example
from opsmith.errors import DeclarationError
from opsmith.kernels import HOST

#: Shapes to try, the likeliest first: rows, vectors, and inputs of network layers.
_SHAPES = (
    *((4, 6), (6,), (2, 4, 6), (2, 4, 8, 9), (4, 4), (6, 5), (5, 6), (4,), (5,), ()),
    *((5, 4), (2, 6, 5), (2, 5, 6), (5, 4, 3, 3), (4, 5, 3, 3), (5, 4, 3), (4, 1, 3, 3)),
    *((2, 3, 3, 2), (2, 4, 6, 8, 9), (5, 4, 3, 3, 3), (2, 6), (3, 5), (2,)),
)
#: Shapes that belong together, tried before equal shapes: a layer and its weights, an index.
_TOGETHER: dict[int, tuple[tuple[tuple[int, ...], ...], ...]] = {
    2: (
        *(((4, 6), (4, 6)), ((4, 6), (6,)), ((4, 6), (6, 5)), ((2, 4, 8, 9), (5, 4, 3, 3))),
        *(((2, 4, 8), (5, 4, 3)), ((2, 4, 6), (2, 6, 5))),
        *(((6, 4), (6,)), ((2, 4, 8, 9), (3, 5))),  # boxes with scores, maps with regions
        *(((2, 4, 8, 9), (4, 5, 3, 3)), ((2, 4, 8, 9), (2, 3, 3, 2))),  # the latter with a grid
    ),
    3: (((4, 6), (4, 6), (4, 6)), ((4, 6), (6,), (4, 6)), ((4, 5), (4, 6), (6, 5))),
}
_DTYPES = (torch.float32, torch.int64, torch.bool)
_INTS = (2, 1, 0, -1, 4)
#: Number of combinations of numbers to try with each shape.
_SCALARS = 60
_SECONDS = 20.0


class NoCallError(DeclarationError):
    """No call was found that the operator accepts."""


def found(subject: Origin, written: str | None, name: str) -> tuple[Origin, dict[str, Any]]:
    """Return the subject and the arguments of an accepted call, tensors as `Spec` or as given.

    Args:
        subject: the operator or function to call.
        written: the arguments as Python, ``torch.rand(5, 4), 0.5``; `None` to try some.
        name: the subject's name in messages.

    Raises:
        DeclarationError: the given arguments are invalid.
        NoCallError: no call was found that is accepted.
    """
    if written is not None:
        return _given(subject, written)
    started = time.monotonic()
    for values in _candidates(subject):
        # A fake kernel refuses cheaply; but it may accept what the operator refuses, so call that
        # too.
        if _may_take(subject, values) and subject.takes([values])[0]:
            return subject, values
        if time.monotonic() - started > _SECONDS:
            break
    parameters = ", ".join(one.name for one in subject.arguments)
    raise NoCallError(
        f"{name}: no call was found that it accepts. Give one, as in "
        f'--example "torch.rand(5, 4), 0.5"; its parameters are ({parameters})'
    )


def _given(subject: Origin, written: str) -> tuple[Origin, dict[str, Any]]:
    def bound(*args: Any, **kwargs: Any) -> inspect.BoundArguments:
        parameters = [
            inspect.Parameter(
                one.name,
                inspect.Parameter.KEYWORD_ONLY
                if one.keyword_only
                else inspect.Parameter.POSITIONAL_OR_KEYWORD,
                default=None if one.optional and one.required else one.default,
            )
            for one in subject.arguments
        ]
        return inspect.Signature(parameters).bind(*args, **kwargs)

    try:
        call = eval(f"bound({written})", {"torch": torch, "bound": bound})
    except Exception as error:
        raise DeclarationError(
            f"{subject.name}: the example {written!r} cannot be read "
            f"({type(error).__name__}: {error})"
        ) from error
    call.apply_defaults()
    values = dict(call.arguments)
    subject = with_example(subject, values)
    try:
        subject.call(values, HOST)
    except Exception as error:
        raise DeclarationError(f"{subject.name}: refuses the example: {error}") from error
    return subject, values


def sources(subject: Origin, written: str | None) -> dict[str, str]:
    """Return the Python text of each argument of an example; nothing if it unpacks with ``*``.

    Args:
        subject: the operator or function to call.
        written: the arguments, as for `found`.
    """
    if written is None:
        return {}
    call = ast.parse(f"bound({written})", mode="eval").body
    assert isinstance(call, ast.Call)
    if any(isinstance(one, ast.Starred) for one in call.args):
        return {}
    names = [one.name for one in subject.arguments if not one.keyword_only]
    given = dict(zip(names, call.args, strict=False))
    given |= {one.arg: one.value for one in call.keywords if one.arg}
    return {name: ast.unparse(node) for name, node in given.items()}


def _may_take(subject: Origin, values: Mapping[str, Any]) -> bool:
    """Return whether the fake kernel accepts a call, or the operator has no fake kernel."""
    try:
        subject.call(values, "meta")
    except Exception as error:
        absent = isinstance(error, NotImplementedError) or "no fake impl" in str(error)
        return absent or (subject.has_python_fake and subject.traced(values) is not None)
    return True


def _candidates(subject: Origin) -> Iterator[dict[str, Any]]:
    """Yield calls to try, simple ones (few shapes and dtypes) first, without optional arguments."""
    wanted = [one for one in subject.arguments if one.required]
    tensors = [one for one in wanted if one.is_tensors]
    others = [one for one in wanted if not one.is_tensors]
    optional = [one for one in subject.arguments if not one.required]
    rest = {one.name: _left_out(one) for one in optional}
    # Some operators require one of several optional numbers.
    filled = {one.name: 0.5 for one in optional if one.kind == "float" and rest[one.name] is None}
    dtypes = sorted(
        itertools.product(_DTYPES, repeat=len(tensors)),
        key=lambda chosen: sum(map(_DTYPES.index, chosen)),
    )
    scalars = sorted(
        itertools.product(*(list(enumerate(_values(one))) for one in others)),
        key=lambda chosen: sum(position for position, _ in chosen),
    )
    del scalars[_SCALARS:]
    # Take a weight of another shape before integers of the same.
    tried = itertools.chain(
        ((shapes, dtypes[0]) for shapes in _TOGETHER.get(len(tensors), ())),
        ((shapes, types) for shapes in _shapes(len(tensors)) for types in dtypes),
    )
    for shapes, types in tried:
        specs = [Spec(*pair) for pair in zip(shapes, types, strict=True)]
        made = {
            one.name: [spec, spec] if one.kind == "tensors" else spec
            for one, spec in zip(tensors, specs, strict=True)
        }
        for chosen in scalars:
            given = {one.name: value for one, (_, value) in zip(others, chosen, strict=True)}
            for more in ({}, filled) if filled else ({},):
                values = {**rest, **made, **given, **more}
                yield {one.name: values[one.name] for one in subject.arguments}


def _left_out(argument: DraftArgument) -> Any:
    """Return the value of an argument that a call leaves out."""
    if argument.default == [] and argument.length:
        return [2] * argument.length  # a value for each axis shows more than an empty list
    return None if argument.default is inspect.Parameter.empty else argument.default


def _shapes(count: int) -> Iterator[tuple[tuple[int, ...], ...]]:
    """Yield shapes for `count` tensors: equal shapes first, then those early in the list."""
    if not count:
        yield ()
        return
    yield from _TOGETHER.get(count, ())
    for shape in _SHAPES:
        yield (shape,) * count
    pairs: Iterable[tuple[tuple[int, tuple[int, ...]], ...]]
    pairs = itertools.product(list(enumerate(_SHAPES)), repeat=count)
    if count < 4:
        pairs = sorted(pairs, key=lambda chosen: sum(position for position, _ in chosen))
    for chosen in pairs:
        shapes = tuple(shape for _, shape in chosen)
        if len(set(shapes)) > 1:
            yield shapes


def _values(argument: DraftArgument) -> tuple[Any, ...]:
    match argument.kind:
        case "int":
            return _INTS
        case "float":
            return (0.5, 1.0)
        case "bool":
            return (False, True)
        case "ints":
            length = argument.length
            lists = [[value] * n for n in ((length,) if length else (1, 2, 3)) for value in (1, 2)]
            return (*lists, [0], [6], [0, 1], [4, 6], [3, 3])
        case "floats":
            return ([0.5], [0.5, 0.5])
        case "bools":
            return ([False], [False, False])
        case _:
            return ("sum", "mean", "none", "ij,jk->ik", "ij->ji")
