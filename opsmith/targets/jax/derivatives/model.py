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
from opsmith.signature.dtype_variables import parts

#: A float as `repr` writes it, without its sign.
_NUMBER = re.compile(r"(?<![\w.])(?:\d+\.\d+(?:e[+-]?\d+)?|\d+e[+-]?\d+)")
#: Without `resolution`: its values, such as 0.001 and 0.01, often occur with other meanings.
_LIMITS = ("max", "eps", "tiny")


class UntranslatableError(Exception):
    """The reason why a derivative cannot be translated to JAX."""


class ReadsValuesError(UntranslatableError):
    """The derivative reads values, which JAX does not know while it compiles.

    A call so small that no values are read takes a path that other calls of its kind do not
    take.
    """

    def __init__(self, place: str = "") -> None:
        super().__init__(f"reads values of its arguments{place}")


@dataclass
class Path:
    """A variant as text.

    Attributes:
        kinds: the kinds of calls that took the path, one entry per kind; see `kinds_of`.
        inputs: names of its parameters: the arguments, then results and their gradients.
        count: number of arguments among the inputs.
        conditions: text of each condition, and whether only PyTorch's internals depend on it.
        body: its statements.
    """

    kinds: list[tuple[Any, ...]]
    inputs: list[str]
    count: int
    conditions: list[tuple[str, bool]]
    body: list[str]

    @cached_property
    def compiled(self) -> list[tuple[str, Callable[..., bool], bool]]:
        """Return the conditions as functions of the arguments."""
        taken = ", ".join(self.inputs[: self.count])
        return [
            (text, eval(f"lambda {taken}: {text}", {"math": math}), minor)
            for text, minor in self.conditions
        ]

    def in_dtypes(self, dtypes: Mapping[str, str], limits: Mapping[str, str]) -> Path:
        """Return the same path with other dtypes in place of some, not assigned to any calls yet.

        Args:
            dtypes: the new dtypes by the old ones.
            limits: replacements of numbers; see `limits_by`.
        """
        changed = {repr(before): repr(after) for before, after in dtypes.items()}
        pattern = re.compile("|".join(map(re.escape, changed)))
        body = [pattern.sub(lambda found: changed[found[0]], line) for line in self.body]
        if limits:
            body = [_NUMBER.sub(lambda found: limits.get(found[0], found[0]), s) for s in body]
        return replace(self, kinds=[], body=body)

    def is_same(self, other: Path) -> bool:
        """Return whether both have the same statements, and the same conditions of user code."""
        return (self.inputs, self.body, self._asked()) == (other.inputs, other.body, other._asked())

    def limits_by(self, other: Path, dtype: str) -> dict[str, str]:
        """Map numbers of this path to limits of a dtype at the same places of another path.

        References name such limits (``torch.finfo(x.dtype).min`` for masked values), and they
        differ between dtypes.

        Args:
            other: the other path.
            dtype: its dtype, or its choice of dtypes.

        Returns:
            The other path's numbers by this path's; empty if the paths differ in anything else, or
            if a number corresponds to several.
        """
        pairs: dict[str, str] = {}
        for own, its in zip(self.body, other.body, strict=False):
            for one, another in zip(_NUMBER.findall(own), _NUMBER.findall(its), strict=False):
                if pairs.setdefault(one, another) != another:
                    return {}
        floating = [DTYPES[one] for one in parts(dtype) if DTYPES[one].is_floating_point]
        changed = {one: another for one, another in pairs.items() if one != another}
        known = [torch.finfo(one) for one in floating]
        limits = {repr(float(getattr(one, name))) for one in known for name in _LIMITS}
        return changed if limits.issuperset(changed.values()) else {}

    def _asked(self) -> set[str]:
        return {text for text, minor in self.conditions if not minor}


@dataclass
class Derivative:
    """An operator's derivative, translated.

    Attributes:
        how: ``"ByHand"`` or ``"ByReference"``.
        paths: the variants.
        calls: the operators that the derivative calls.
        lacking: why the first missing path could not be translated; empty if none is missing.
        hindered: the registered cases that could not be translated: `kinds_of` and `small_sizes` of
            each, and the reason.
    """

    how: str
    paths: list[Path] = field(default_factory=list)
    calls: list[Operator] = field(default_factory=list)
    lacking: str = ""
    hindered: list[tuple[tuple[Any, ...], tuple[Any, ...], str]] = field(default_factory=list)
