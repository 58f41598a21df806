"""Indices that select by a value, and sorted values: results that a declaration describes.

An index is right if the value that it selects is the one that the reference's index selects, or if
rounding may make the two values equal. No rounding changes an argument's values, so an index into
an argument may only select an equal value. Values that a function computes, or another result
holds, have the tolerance and the rounding errors that the oracle measures.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import torch
from torch import Tensor

from opsmith.checks.cases.layouts import plain
from opsmith.checks.numerics.oracle import Expected, measure, widen
from opsmith.checks.numerics.perturbation import keep_indices
from opsmith.checks.numerics.tolerances import tolerance
from opsmith.operators.core.arguments import describe
from opsmith.signature import Order, Selects, Signature, bind

Evaluate = Callable[[Mapping[str, Any]], list[Tensor]]


class UnfitValuesError(ValueError):
    """Raised if the values of a `Selects` do not fit its index; the message says what would."""


@dataclass(frozen=True)
class Candidates:
    """The values among which an index selects.

    Attributes:
        values: the values, in double precision where they are computed.
        rounded: returns the values in the case's own dtype; `None` if there are no others.
        allowed: yields the allowed difference from each value, larger ones later.
    """

    values: Tensor
    rounded: Callable[[], Tensor | None]
    allowed: Callable[[], Iterator[Tensor]]

    def narrow(self, dim: int, start: int, length: int) -> Candidates:
        """Return a slice of the candidates."""

        def rounded() -> Tensor | None:
            whole = self.rounded()
            return None if whole is None else whole.narrow(dim, start, length)

        return Candidates(
            self.values.narrow(dim, start, length),
            rounded,
            lambda: (one.narrow(dim, start, length) for one in self.allowed()),
        )


@dataclass(frozen=True)
class Selection:
    """The rule that decides which indices of a result are right.

    Attributes:
        compute: function that returns the candidates.
    """

    selects: Selects
    compute: Callable[[], Candidates]

    @cached_property
    def candidates(self) -> Candidates:
        """The values among which the index selects."""
        return self.compute()

    def cut(self, axis: int, start: int, length: int, rank: int) -> Selection:
        """Return the rule for a slice of the index.

        Args:
            axis: the sliced dimension of the index.
            start: the first place of the slice.
            length: the number of places.
            rank: the number of dimensions of the index.
        """

        def sliced() -> Candidates:
            whole = self.candidates
            selected = self.selects.dim % whole.values.dim()
            if rank == whole.values.dim() and axis == selected:
                return whole
            place = axis if rank == whole.values.dim() else axis + (axis >= selected)
            return whole.narrow(place, start, length)

        return replace(self, compute=sliced)

    def ratio(self, index: Tensor, right: Tensor) -> Tensor:
        """Return the error of each index, in units of the tolerance of the selected values.

        Args:
            index: the kernel's indices.
            right: the reference's indices.
        """
        values = self.candidates.values
        dim = self._dim(index)
        kept = index.dim() == values.dim()

        def last(one: Tensor) -> Tensor:
            return one.long().movedim(dim, -1) if kept else one.long().unsqueeze(-1)

        index, right, count = last(index), last(right), values.shape[dim]
        inside = (index >= 0) & (index < count) & (right >= 0) & (right < count)
        ratio = torch.where(index == right, 0.0, torch.inf).to(torch.float64)
        if count:
            one, other = index.clamp(0, count - 1), right.clamp(0, count - 1)

            def both(values: Tensor) -> tuple[Tensor, Tensor]:
                moved = values.movedim(dim, -1)
                return moved.gather(-1, one), moved.gather(-1, other)

            ratio = torch.where(inside & _same(*both(self.candidates.values)), 0.0, ratio)
            rounded = self.candidates.rounded() if bool((inside & (ratio > 1)).any()) else None
            if rounded is not None:
                # A kernel cannot tell apart what rounds to one number, infinity above all.
                ratio = torch.where(inside & _same(*both(rounded)), 0.0, ratio)
            chosen, best = both(self.candidates.values)
            for allowed in self.candidates.allowed():
                if not bool((inside & (ratio > 1)).any()):
                    break
                found = (chosen.double() - best.double()).abs() / sum(both(allowed))
                ratio = torch.where(inside & (found < ratio), found, ratio)
        ratio = torch.where(_repeated(index, right), torch.inf, ratio)
        return ratio.movedim(-1, dim) if kept else ratio.squeeze(-1)

    def repeats(self, index: Tensor, right: Tensor) -> bool:
        """Return whether an index stands twice in a row in which the right ones differ."""
        dim = self._dim(index)
        if index.dim() < self.candidates.values.dim():
            return False
        return bool(_repeated(index.movedim(dim, -1), right.movedim(dim, -1)).any())

    def selected(self, index: Tensor, right: Tensor) -> tuple[Tensor, Tensor]:
        """Return the values that both select; the indices themselves if they are out of range."""
        dim, values = self._dim(index), self.candidates.values
        kept = index.dim() == values.dim()
        chosen = []
        for one in (index, right):
            if bool(((one < 0) | (one >= values.shape[dim])).any()):
                return index, right
            found = values.gather(dim, (one if kept else one.unsqueeze(dim)).long())
            chosen.append(found if kept else found.squeeze(dim))
        return chosen[0], chosen[1]

    def _dim(self, index: Tensor) -> int:
        """Return the dimension of the values along which the index selects."""
        values, dim = self.candidates.values, self.selects.dim
        if -values.dim() <= dim < values.dim():
            dim %= values.dim()
            rest = [size for axis, size in enumerate(values.shape) if axis != dim]
            own = list(index.shape)
            if index.dim() == values.dim():
                own.pop(dim)
            if own == rest:
                return dim
        raise UnfitValuesError(
            f"{self.selects!r} gives values of shape {tuple(values.shape)} for an index of shape "
            f"{tuple(index.shape)}: expected the same dimensions except dim={self.selects.dim}, "
            "which the index may have in any size, or lack"
        )


def _same(one: Tensor, other: Tensor) -> Tensor:
    return (one == other) | (one.isnan() & other.isnan())


def _repeated(index: Tensor, right: Tensor) -> Tensor:
    """Find wrong indices that stand twice in a row in which the right ones differ."""
    order = index.argsort(dim=-1, stable=True)
    ordered, beside = index.gather(-1, order), right.gather(-1, order)
    twice = (ordered[..., 1:] == ordered[..., :-1]) & (beside[..., 1:] != beside[..., :-1])
    no = torch.zeros_like(index[..., :1], dtype=torch.bool)
    found = torch.cat([twice, no], -1) | torch.cat([no, twice], -1)
    if not index.shape[-1]:
        return torch.zeros_like(index, dtype=torch.bool)
    return torch.zeros_like(found).scatter(-1, order, found) & (index != right)


def of_argument(values: Tensor) -> Candidates:
    """Return the candidates that an argument holds."""
    return Candidates(plain(values), lambda: None, lambda: iter(()))


def of_result(truth: Expected, position: int) -> Candidates:
    """Return the candidates that a result holds."""

    def rounded() -> Tensor | None:
        return None if truth.narrow is None else truth.narrow[position]

    def allowed() -> Iterator[Tensor]:
        own = rounded()
        if truth.spread[position] is None or own is None or not own.is_floating_point():
            return
        room = tolerance(truth, position, own.dtype)
        yield room
        for rounding, _ in truth.rounding(position):
            yield torch.maximum(room, rounding)

    return Candidates(truth.values[position], rounded, allowed)


def of_function(
    function: Callable[..., Any], arguments: Mapping[str, Any], signature: Signature
) -> Candidates:
    """Return the candidates that a function computes from arguments, its parameters by name."""
    names = list(inspect.signature(function).parameters)

    def evaluate(given: Mapping[str, Any]) -> list[Tensor]:
        given = keep_indices(signature, own, given)
        return [plain(function(**{name: given[name] for name in names}))]

    own = {name: arguments[name] for name in names}
    return of_result(measure(evaluate, {name: widen(one) for name, one in own.items()}, own), 0)


@dataclass(frozen=True)
class Claim:
    """The properties that a declaration states of one result.

    Attributes:
        selection: the rule for its indices; `None` if they do not select.
        order: the order of its values; `None` if they may be in any order.
        ends: the declared first and last value in this call.
    """

    selection: Selection | None
    order: Order | None
    ends: Mapping[str, Any]


def selection_of(
    signature: Signature, position: int, arguments: Mapping[str, Any], results: Sequence[Tensor]
) -> Selection | None:
    """Return the rule for an index, with the candidates' values as they are."""
    rule = signature.results[position].selects
    if rule is None:
        return None

    def compute() -> Candidates:
        if isinstance(rule.by, str):
            names = [one.name for one in signature.results]
            held = arguments[rule.by] if rule.by in arguments else results[names.index(rule.by)]
            return of_argument(held)
        given = inspect.signature(rule.by).parameters
        return of_argument(rule.by(**{name: arguments[name] for name in given}))

    return Selection(rule, compute)


def claims_of(truth: Expected) -> dict[int, Claim]:
    """Return what the declaration states of the results of a call, by their positions."""
    signature = truth.signature
    found: dict[int, Claim] = {}
    for position, result in enumerate(signature.results if signature is not None else ()):
        assert signature is not None
        orders = [one for one in result.constraints if isinstance(one, Order)]
        order = orders[0] if orders else None
        if order is None and result.selects is None:
            continue
        rank, cut = truth.values[position].dim(), truth.cuts.get(position)
        whole = cut is None or cut[0] < rank - 1
        ends = _ends(signature, order, truth.arguments) if order is not None and whole else {}
        rule, selection = result.selects, None
        if rule is not None:
            selection = Selection(rule, _computing(signature, rule, truth))
            if cut is not None and rule.by not in [one.name for one in signature.results]:
                selection = selection.cut(*cut, rank)
        found[position] = Claim(selection, order, ends)
    return found


def _computing(signature: Signature, rule: Selects, truth: Expected) -> Callable[[], Candidates]:
    by = rule.by
    if not isinstance(by, str):
        return lambda: of_function(by, truth.arguments, signature)
    if by in signature.by_name:
        return lambda: of_argument(truth.arguments[by])
    position = [result.name for result in signature.results].index(by)
    return lambda: of_result(truth, position)


def _ends(signature: Signature, order: Order, arguments: Mapping[str, Any]) -> dict[str, Any]:
    bounds = {"first": order.first, "last": order.last}
    if not any(bounds.values()):
        return {}
    dims = bind(signature, describe(arguments, signature)).dims
    return {end: bound.number(dims, arguments) for end, bound in bounds.items() if bound}


def unsorted(value: Tensor, order: Order, ends: Mapping[str, Any]) -> str:
    """Describe why values are not in a declared order; empty if they are.

    Args:
        value: the values, in rows along the last dimension.
        ends: the declared first and last value, if there are any.
    """
    if not value.numel():
        return ""
    before, after = value[..., :-1], value[..., 1:]
    fits = (before < after) if order.strict else (before <= after)
    wrong = ~(fits | after.isnan())  # NaN comes last where PyTorch sorts
    if bool(wrong.any()):
        *row, place = wrong.nonzero()[0].tolist()
        found, earlier = (value.select(-1, at)[tuple(row)].item() for at in (place + 1, place))
        return f"{[*row, place + 1]} is {found} after {earlier}, expected {order.text}"
    for end, number in ends.items():
        off = value.select(-1, 0 if end == "first" else -1) != number
        if bool(off.any()):
            row = off.nonzero()[0].tolist()
            at = [*row, 0 if end == "first" else value.shape[-1] - 1]
            return f"{at} is {value[tuple(at)].item()}, expected {number} as the {end} value"
    return ""
