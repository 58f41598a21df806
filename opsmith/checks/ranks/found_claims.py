"""Find claims that hold for the reference and were not made."""

from __future__ import annotations

import functools
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from opsmith.checks.cases.case import Case
from opsmith.checks.cases.reference_call import run_reference
from opsmith.checks.numerics.oracle import widen
from opsmith.operators import Operator
from opsmith.operators.core.arguments import each_tensor, map_tensors
from opsmith.signature import Signature, sharding
from opsmith.signature.dtypes import COMPLEX, FLOATING

#: A claim is offered if it held for this many cases in which it says something.
_ENOUGH = 3


@dataclass
class Candidate:
    """A claim that an author may make.

    Attributes:
        line: the claim as the decorator takes it.
        rule: the rule that follows from it.
        held: number of cases in which it held, and could have failed.
        wrong: whether it failed for a case.
    """

    line: str
    rule: sharding.ShardingRule
    held: int = 0
    wrong: bool = False


class FoundClaims:
    """The claims of an operator that were not made, tried against its reference in float64."""

    def __init__(self, operator: Operator) -> None:
        self._operator = operator
        self._candidates = list(_candidates(operator.signature))

    def learn(self, case: Case) -> None:
        """Try each claim that has not failed on one more case."""
        open_ = [one for one in self._candidates if not one.wrong]
        if not open_:
            return
        arguments = {name: widen(value) for name, value in case.values.items()}
        try:
            whole = self._results(arguments)
        except Exception:
            return
        for candidate in open_:
            try:
                self._try(candidate, arguments, whole)
            except Exception:  # the reference refuses the parts
                candidate.wrong = True

    def lines(self) -> list[str]:
        """Return the claims that held, as the decorator takes them."""
        found: dict[str, list[str]] = {}
        for one in self._candidates:
            if one.held >= _ENOUGH and not one.wrong:
                name, _, value = one.line.partition("=")
                found.setdefault(name, []).append(value)
        return [
            f"{name}=({', '.join(values)}{',' if len(values) == 1 else ''})"
            for name, values in found.items()
        ]

    def _results(self, arguments: Mapping[str, Any]) -> list[Tensor]:
        return run_reference(self._operator, arguments)[1]

    def _try(self, candidate: Candidate, arguments: Mapping[str, Any], whole: list[Tensor]) -> None:
        for further in range(self._width(candidate.rule, arguments)):
            parts = _split(candidate.rule, arguments, further)
            if parts is None:
                continue
            several = [self._results(part) for part in parts]
            for position, expected in enumerate(whole):
                found = [results[position] for results in several]
                placement = candidate.rule.results[position]
                joined = (
                    torch.cat(found, _axis(placement.axis, found[0].dim(), further))
                    if isinstance(placement, sharding.Shard)
                    else sum(found[1:], found[0])
                )
                if joined.shape != expected.shape or not torch.allclose(
                    joined, expected, 1e-9, 1e-9, equal_nan=True
                ):
                    candidate.wrong = True
                    return
            candidate.held += any(result.numel() for result in whole)

    def _width(self, rule: sharding.ShardingRule, arguments: Mapping[str, Any]) -> int:
        if not rule.variadic:
            return 1
        signature = self._operator.signature
        source = signature.dim_sources[rule.variadic]
        shape = signature.by_name[source].shape
        tensors = each_tensor(arguments[source])
        return tensors[0].dim() - shape.rank if shape is not None and tensors else 0


def _candidates(signature: Signature) -> list[Candidate]:
    if signature.mutated or not signature.results:
        return []
    bare = replace(signature, parallel_dims=(), summed_dims=(), linear_in=())
    found = []
    made = {*signature.parallel_dims, *signature.summed_dims}
    for name in signature.dims:
        dim = f"*{name}" if name in signature.variadic_dims else name
        shapes = [result.shape for result in signature.results]
        everywhere = all(shape is not None and name in shape.binds() for shape in shapes)
        claim = "parallel_dims" if everywhere else "summed_dims"
        if dim not in made:
            claims: dict[str, Any] = {claim: (dim,)}
            found += _of(f'{claim}="{dim}"', replace(bare, **claims))
    inexact = {*FLOATING, *COMPLEX}
    types = [result.tensor_type for result in signature.results]
    if not all(inexact & set(type_.dtypes.names) for type_ in types):
        return found
    floats = [
        p.name
        for p in signature.tensors
        if p.tensor_type and p.differentiable and inexact & set(p.tensor_type.dtypes.names)
    ]
    groups = [(name,) for name in floats] + ([tuple(floats)] if len(floats) > 1 else [])
    for group in groups:
        if group not in signature.linear_in:
            written = ", ".join(f'"{name}"' for name in group)
            value = written if len(group) == 1 else f"({written})"
            found += _of(f"linear_in={value}", replace(bare, linear_in=(group,)))
    return found


def _of(line: str, signature: Signature) -> list[Candidate]:
    return [Candidate(line, rule) for rule in sharding.sharding_rules(signature)[1:]]


def _axis(axis: int, rank: int, further: int) -> int:
    return (axis if axis >= 0 else axis + rank) + further


def _split(
    rule: sharding.ShardingRule, arguments: Mapping[str, Any], further: int
) -> list[dict[str, Any]] | None:
    """Return the arguments of two ranks; `None` if there is nothing to share."""
    parts: list[dict[str, Any]] = [{}, {}]
    shared = False
    for name, value in arguments.items():
        placement = rule.arguments.get(name)
        for place, part in enumerate(parts):
            if not isinstance(placement, sharding.Shard | sharding.Partial) or value is None:
                part[name] = value
                continue
            tensors = each_tensor(value)
            if isinstance(placement, sharding.Partial):
                shared |= any(tensor.numel() for tensor in tensors)
                times = 2.0 if place else -1.0
                part[name] = map_tensors(value, functools.partial(torch.mul, other=times))
                continue
            axes = [_axis(placement.axis, tensor.dim(), further) for tensor in tensors]
            shared |= any(t.shape[axis] > 1 for t, axis in zip(tensors, axes, strict=True))
            cut = [_half(t, axis, place) for t, axis in zip(tensors, axes, strict=True)]
            part[name] = cut if isinstance(value, list | tuple) else cut[0]
    return parts if shared else None


def _half(tensor: Tensor, axis: int, place: int) -> Tensor:
    """Return the first two thirds of a tensor along an axis, or the rest."""
    size = tensor.shape[axis]
    first = -(-2 * size // 3)
    return tensor.narrow(axis, first, size - first) if place else tensor.narrow(axis, 0, first)
