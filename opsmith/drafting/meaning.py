"""Find what results and values mean: indices that select, sorted results, NaN that has no meaning.

The findings rest on a few calls, with numbers drawn from both sides of zero.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from opsmith.drafting.dimensions import Sizes
from opsmith.drafting.subject import Origin, Spec
from opsmith.kernels import HOST
from opsmith.operators.core.arguments import map_tensors

_SEEDS = (0, 1, 2)


@dataclass(frozen=True)
class Meaning:
    """The marks that were found.

    Attributes:
        results: the marks of each result, as a declaration writes them.
        arguments: the mark of each argument that has one, by name.
        notes: remarks on the declaration, as sentences.
        pinned: the arguments to fix at the example's values, since they change what a result means.
    """

    results: Sequence[tuple[str, ...]]
    arguments: Mapping[str, str]
    notes: Sequence[str]
    pinned: Sequence[str] = ()


@dataclass(frozen=True)
class _Seen:
    """A call that succeeded."""

    given: Mapping[str, Any]
    results: Sequence[Any]


def found(subject: Origin, sizes: Sizes, floats: Sequence[torch.dtype], count: int) -> Meaning:
    """Find by calls what a declaration may state about results and arguments.

    Args:
        subject: the operator, which survives calls with any numbers.
        sizes: a call, and its free sizes.
        floats: the floating-point dtypes that it accepts.
        count: the number of results.
    """
    choices = _choices(subject)
    every = list(_calls(subject, sizes, choices))
    if len(list(_calls(subject, sizes, {}))) < 2:
        return Meaning([()] * count, {}, ())
    marks: list[tuple[str, ...]] = []
    notes, pinned = [], []
    for position in range(count):
        seen, by = every, _selects(every, position)
        for name in choices if by is None else ():
            others = {one: values for one, values in choices.items() if one != name}
            seen = list(_calls(subject, sizes, others))
            by = _selects(seen, position)
            if by is not None:
                pinned.append(name)
                notes.append(
                    f"{name!r} decides along which dimension result {position} selects, and is "
                    "fixed. Declare another operator for each dimension that you need."
                )
                break
        marks.append(
            (
                *([_written(seen, by)] if by else []),
                *(["Sorted()"] if _sorted(every, position) else []),
            )
        )
    return Meaning(marks, _unspecified(subject, sizes, floats), notes, pinned)


def _choices(subject: Origin) -> dict[str, Sequence[Any]]:
    """Return the arguments that may change what a result means, with values to try."""
    return {
        one.name: (False, True) if one.kind == "bool" else (0, 1, -1)
        for one in subject.arguments
        if one.kind in ("bool", "int")
    }


def _drawn(value: Any, generator: torch.Generator) -> Any:
    """Return random numbers, some of them equal, for a `Spec` of a floating-point tensor."""
    if isinstance(value, list):
        return [_drawn(one, generator) for one in value]
    if not isinstance(value, Spec) or not value.dtype.is_floating_point:
        return value
    drawn = torch.randn(value.shape, generator=generator, dtype=torch.float64)
    return (drawn * 4).round().div(4).to(value.dtype)


def _calls(subject: Origin, sizes: Sizes, choices: Mapping[str, Sequence[Any]]) -> Iterator[_Seen]:
    for chosen in itertools.islice(itertools.product(*choices.values()), 24):
        for seed, at in zip(_SEEDS, sizes.vary(len(_SEEDS)), strict=True):
            call = sizes.at(at, dict(zip(choices, chosen, strict=True)))
            seen = _tried(subject, call, seed)
            if seen is not None:
                yield seen


def _tried(subject: Origin, call: Mapping[str, Any], seed: int) -> _Seen | None:
    generator = torch.Generator().manual_seed(seed)
    given = subject.made({name: _drawn(value, generator) for name, value in call.items()})
    kept = {name: map_tensors(value, torch.clone) for name, value in given.items()}
    # A call that ends its process is made by a copy first.
    if not subject.takes([given])[0]:
        return None
    returned = subject.call(given, HOST)
    return _Seen(kept, returned if isinstance(returned, tuple) else (returned,))


_By = tuple[str, int]
"""An argument's name, and the dimension along which an index selects."""


def _selects(seen: Sequence[_Seen], position: int) -> _By | None:
    """Return by what a result selects in every call; `None` if in some it does not."""
    candidates: set[_By] | None = None
    for one in seen:
        index = one.results[position]
        if not isinstance(index, Tensor) or index.dtype not in (torch.int32, torch.int64):
            return None
        if not index.numel():
            continue
        fits = {
            (name, dim)
            for name, values in one.given.items()
            if isinstance(values, Tensor) and values.is_floating_point()
            for dim in range(values.dim())
            if _picks(values, dim, index, [*one.results[:position], *one.results[position + 1 :]])
        }
        candidates = fits if candidates is None else candidates & fits
    return min(candidates) if candidates else None


def _picks(values: Tensor, dim: int, index: Tensor, others: Sequence[Any]) -> bool:
    """Return whether an index picks what another result holds, or the largest or the smallest."""
    alone = index.dim() == values.dim() - 1
    wide = index.long().unsqueeze(dim) if alone else index.long()
    shapes = [[*t.shape[:dim], *t.shape[dim + 1 :]] for t in (values, wide)]
    if wide.dim() != values.dim() or shapes[0] != shapes[1]:
        return False
    if values.shape[dim] < 2 or wide.min() < 0 or wide.max() >= values.shape[dim]:
        return False
    picked = values.gather(dim, wide)
    held = picked.squeeze(dim) if alone else picked
    if any(isinstance(other, Tensor) and torch.equal(other, held) for other in others):
        return True
    if wide.shape[dim] not in (1, values.shape[dim]):
        return False
    orders = (values.sort(dim, descending=down).values for down in (False, True))
    return any(torch.equal(picked, one.narrow(dim, 0, wide.shape[dim])) for one in orders)


def _written(seen: Sequence[_Seen], by: _By) -> str:
    name, dim = by
    last = seen[0].given[name].dim() - 1
    return f'Selects("{name}")' if dim == last else f'Selects("{name}", dim={dim})'


def _sorted(seen: Sequence[_Seen], position: int) -> bool:
    """Return whether a result was in order along its last dimension in every call."""
    compared = 0
    for one in seen:
        result = one.results[position]
        if not isinstance(result, Tensor) or not result.dim() or result.is_complex():
            return False
        steps = result.double().diff(dim=-1)
        if not bool((steps >= 0).all()):
            return False
        compared += int((steps > 0).sum())
    return compared > 8


def _unspecified(subject: Origin, sizes: Sizes, floats: Sequence[torch.dtype]) -> dict[str, str]:
    """Return marks for arguments whose NaN or infinity is refused, or read differently by dtype."""
    if not {torch.float32, torch.float64} <= set(floats):
        return {}
    marks = {}
    for name, value in sizes.values.items():
        if not isinstance(value, Spec) or not value.dtype.is_floating_point or 0 in value.shape:
            continue
        open_ = [
            f"{word}=True"
            for word, number in (("nan", torch.nan), ("inf", torch.inf))
            if not _settled(subject, sizes, name, number)
        ]
        if open_:
            marks[name] = f"Unspecified({', '.join(open_)})"
    return marks


def _settled(subject: Origin, sizes: Sizes, name: str, number: float) -> bool:
    """Return whether calls with this number are taken, and agree between single and double."""
    generator = torch.Generator().manual_seed(0)
    given = {key: _drawn(value, generator) for key, value in sizes.values.items()}
    given[name].view(-1)[::2] = number
    patterns = []
    for dtype in (torch.float32, torch.float64):
        values = {key: map_tensors(one, lambda t: _as(t, dtype)) for key, one in given.items()}  # noqa: B023
        seen = _tried(subject, values, 0)
        if seen is None:
            return False
        patterns.append([_pattern(one) for one in seen.results])
    return all(map(_alike, *patterns))


def _as(tensor: Tensor, dtype: torch.dtype) -> Tensor:
    return tensor.to(dtype) if tensor.is_floating_point() else tensor


def _pattern(result: Any) -> Any:
    if not isinstance(result, Tensor):
        return None
    return result.float().isfinite() if result.is_floating_point() else result  # float8 has none


def _alike(one: Any, other: Any) -> bool:
    return one is None or (one.shape == other.shape and torch.equal(one, other))
