"""Planted faults: each is a small wrong operator beside its right twin.

A pair shares a declaration and a reference. The wrong twin has to fail `opsmith check`, the right
one has to pass. The faults are what authors of kernels get wrong, and what programs do that
optimise for passing.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

import opsmith

PAIRS: list[Pair] = []
_OVERRIDING = torch.library.Library("faults", "IMPL")


@dataclass(frozen=True)
class Pair:
    """A fault.

    Attributes:
        name: what is wrong, in a few words.
        kind: the family that it belongs to.
        wrong: the operator that has it.
        right: the operator that has not.
        row: the check that has to find it; any where it is empty.
        said: words of the message by check, for each check that has to find it and says them.
    """

    name: str
    kind: str
    wrong: opsmith.Operator
    right: opsmith.Operator
    row: str = ""
    said: Mapping[str, tuple[str, ...]] = field(default_factory=dict)


def planted(name: str) -> Pair:
    """The fault of this name."""
    (found,) = [pair for pair in PAIRS if pair.name == name]
    return found


def identifier(name: str) -> str:
    """A fault's name as an operator's."""
    return re.sub(r"\W+", "_", name).strip("_").lower()


def pair(
    kind: str,
    name: str,
    reference: Callable[..., Any],
    *,
    wrong: Callable[..., Any] | None = None,
    right: Callable[..., Any] | None = None,
    backward: tuple[Callable[..., Any], Callable[..., Any]] | None = None,
    setup: Callable[..., Any] | None = None,
    fake: tuple[Callable[..., Any], Callable[..., Any]] | None = None,
    vmap: tuple[Callable[..., Any], Callable[..., Any]] | None = None,
    override: Callable[..., Any] | None = None,
    cases: Callable[..., Any] | None = None,
    row: str = "",
    said: Mapping[str, tuple[str, ...]] | None = None,
    **options: Any,
) -> None:
    """Plant a fault.

    Args:
        kind: the family.
        name: what is wrong.
        reference: declares the operator.
        wrong: the kernel with the fault; the reference by default.
        right: its twin; the reference by default.
        backward: the wrong and the right backward.
        setup: what both backwards save.
        fake: the wrong and the right fake kernel.
        vmap: the wrong and the right batching rule.
        override: what the wrong twin's kernel is replaced by, as a vendor's backend does that
            registers its own kernel for everything.
        cases: further cases, as `register_cases` takes them.
        row: the check that has to find it.
        said: words of the message by check, for each check that has to find it and says them.
        options: those of `opsmith.op`, for both; a pair of values gives each its own.
    """
    twins = []
    for position, kernel in enumerate((wrong, right)):
        own = {
            key: value[position] if isinstance(value, Each) else value
            for key, value in options.items()
        }
        suffix = ("wrong", "right")[position]
        operator = opsmith.op(f"faults::{identifier(name)}__{suffix}", **own)(reference)
        if kernel is not None:
            operator.register_kernel("cpu", kernel)
        if backward is not None:
            operator.register_autograd(backward[position], setup_context=setup)
        if fake is not None:
            operator.register_fake(fake[position])
        if vmap is not None:
            operator.register_vmap(vmap[position])
        if override is not None and suffix == "wrong":
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # that it overrides is what it is for
                _OVERRIDING.impl(
                    operator.name.partition("::")[2], override, "CPU", allow_override=True
                )
        if cases is not None:
            operator.register_cases(cases)
        twins.append(operator)
    PAIRS.append(Pair(name, kind, *twins, row, said or {}))


@dataclass(frozen=True)
class Each:
    """An option that differs between the twins."""

    wrong: Any
    right: Any

    def __getitem__(self, position: int) -> Any:
        return (self.wrong, self.right)[position]
