"""An operator's derivative as text, one variant per path that PyTorch took through it."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

import torch

from opsmith.operators import Operator
from opsmith.operators.core.arguments import DTYPES

#: A float as `repr` writes it, without its sign.
_NUMBER = re.compile(r"(?<![\w.])(?:\d+\.\d+(?:e[+-]?\d+)?|\d+e[+-]?\d+)")
#: Not `resolution`: 0.001 and 0.01 may stand for anything.
_LIMITS = ("max", "eps", "tiny")


class UntranslatableError(Exception):
    """Why a derivative cannot be taken to JAX."""


class ReadsValuesError(UntranslatableError):
    """It reads values, which JAX does not know while it compiles.

    A call so small that nothing is read takes a path that other calls of its kind do not.
    """

    def __init__(self, place: str = "") -> None:
        super().__init__(f"reads values of its arguments{place}")


@dataclass
class Path:
    """One variant as text.

    Attributes:
        kinds: what the variant is for, one per kind of call that took it; see `kinds_of`.
        inputs: the names of what it takes: the arguments, then results and their gradients.
        count: how many of them are arguments.
        conditions: text of each, and whether it is PyTorch's own concern.
        body: the statements.
    """

    kinds: list[tuple[Any, ...]]
    inputs: list[str]
    count: int
    conditions: list[tuple[str, bool]]
    body: list[str]

    @cached_property
    def compiled(self) -> list[tuple[str, Callable[..., bool], bool]]:
        """The conditions as functions of the arguments."""
        taken = ", ".join(self.inputs[: self.count])
        return [
            (text, eval(f"lambda {taken}: {text}", {"math": math}), minor)
            for text, minor in self.conditions
        ]

    def in_dtype(self, before: str, after: str, limits: Mapping[str, str]) -> Path:
        """The same path where tensors of one dtype have another; it is for no calls yet.

        Args:
            before: the one.
            after: the other.
            limits: what takes the place of numbers; see `limits_by`.
        """
        body = [line.replace(repr(before), repr(after)) for line in self.body]
        if limits:
            body = [_NUMBER.sub(lambda found: limits.get(found[0], found[0]), s) for s in body]
        return replace(self, kinds=[], body=body)

    def is_same(self, other: Path) -> bool:
        """Whether both do the same, and ask the same but for what is PyTorch's own concern."""
        return (self.inputs, self.body, self._asked()) == (other.inputs, other.body, other._asked())

    def limits_by(self, other: Path, dtype: str) -> dict[str, str]:
        """The limits of a dtype that another path has in the places of numbers of this one.

        References name such limits (``torch.finfo(x.dtype).min`` for what a mask hides), and of
        each dtype they are others.

        Args:
            other: the other path.
            dtype: its dtype.

        Returns:
            The numbers of the other, by those of this one; none where anything else is different,
            or one number has several.
        """
        pairs: dict[str, str] = {}
        for own, its in zip(self.body, other.body, strict=False):
            for one, another in zip(_NUMBER.findall(own), _NUMBER.findall(its), strict=False):
                if pairs.setdefault(one, another) != another:
                    return {}
        if not DTYPES[dtype].is_floating_point:
            return {}
        changed = {one: another for one, another in pairs.items() if one != another}
        known = torch.finfo(DTYPES[dtype])
        limits = {repr(float(getattr(known, name))) for name in _LIMITS}
        return changed if limits.issuperset(changed.values()) else {}

    def _asked(self) -> set[str]:
        return {text for text, minor in self.conditions if not minor}


@dataclass
class Derivative:
    """An operator's derivative, translated.

    Attributes:
        how: ``"ByHand"`` or ``"ByReference"``.
        paths: the variants.
        calls: the operators that it calls.
        lacking: what hindered the first path that is not there; empty if all are.
        hindered: the registered cases that could not be translated: `kinds_of` and `small_sizes` of
            each, and why.
    """

    how: str
    paths: list[Path] = field(default_factory=list)
    calls: list[Operator] = field(default_factory=list)
    lacking: str = ""
    hindered: list[tuple[tuple[Any, ...], tuple[Any, ...], str]] = field(default_factory=list)
