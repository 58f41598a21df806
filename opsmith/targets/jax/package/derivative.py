"""Derivatives that were translated from PyTorch when the operator was exported."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from opsmith.errors import DifferentiationError
from opsmith.signature.model import Signature

Conditions = Callable[..., list[tuple[str, Any, bool]]]
"""From the inputs: each condition's text, whether it holds, whether only layouts depend on it."""


@dataclass(frozen=True)
class Variant:
    """One path that PyTorch took through a derivative.

    Attributes:
        kinds: of each argument what fixed the path; see `kinds_of`.
        conditions: what the inputs are compared with before it is taken.
        run: takes the inputs, gives the outputs.
    """

    kinds: tuple[Any, ...]
    conditions: Conditions
    run: Callable[..., Any]


def kinds_of(signature: Signature, arguments: Mapping[str, Any]) -> tuple[Any, ...]:
    """What of a call's arguments decides the path, beside sizes and numbers.

    That is each tensor's rank and dtype, a list's length, which arguments are absent, and every
    bool and text.
    """

    def kind(name: str, value: Any) -> Any:
        parameter = signature.parameter(name)
        if value is None:
            return None
        if parameter.is_tensor:
            return value.ndim, str(value.dtype).removeprefix("torch.")
        if isinstance(value, list | tuple):
            return tuple(kind(name, item) for item in value) if _exact(value) else len(value)
        return value if isinstance(value, bool | str) else "number"

    return tuple(kind(name, arguments[name]) for name in signature.by_name)


def _exact(value: Sequence[Any]) -> bool:
    return any(isinstance(item, bool | str) for item in value)


def inputs_of(signature: Signature, arguments: Mapping[str, Any]) -> list[Any]:
    """The arguments that a path takes: tensors that are there, and every int and float."""

    def flat() -> Iterator[Any]:
        for name in signature.by_name:
            value = arguments[name]
            for item in value if isinstance(value, list | tuple) else [value]:
                if item is not None and not isinstance(item, bool | str):
                    yield item

    return list(flat())


class _Paths:
    def __init__(self, signature: Signature, variants: Sequence[Variant]) -> None:
        self.signature = signature
        self.variants = variants

    def choose(self, arguments: Mapping[str, Any], inputs: Sequence[Any]) -> Callable[..., Any]:
        """The path for a call.

        Raises:
            DifferentiationError: PyTorch took none like it when the operator was exported.
        """
        kinds = kinds_of(self.signature, arguments)
        like = [variant for variant in self.variants if variant.kinds == kinds]
        failing: list[list[tuple[str, bool]]] = []
        for variant in like:
            found = _compared(variant, inputs)
            failing.append([(text, minor) for text, holds, minor in found if not holds])
            if not failing[-1]:
                return variant.run
        # Sizes of 0 and 1 make PyTorch look at how a tensor lies in memory, which JAX's never asks.
        for variant, failed in zip(like, failing, strict=True):
            if all(minor for _, minor in failed):
                return variant.run
        name = self.signature.qualname
        if like:
            texts = " and ".join(text for text, minor in failing[0] if not minor)
            raise DifferentiationError(
                f"{name}: its derivative was translated for calls where {texts}. Register a case "
                "like this call (register_cases) and export again."
            )
        raise DifferentiationError(
            f"{name}: its derivative was translated for calls with other dtypes, numbers of "
            f"dimensions, absent arguments, bools or texts than this one ({_shown(kinds)}). "
            "Register a case like this call (register_cases) and export again."
        )


def _compared(variant: Variant, inputs: Sequence[Any]) -> list[tuple[str, bool, bool]]:
    """What holds of a variant's conditions."""
    try:
        return variant.conditions(*inputs)
    except ZeroDivisionError:
        # It was taken where no size that it divides by is 0: good for lack of a better one.
        return [("no size is 0", False, True)]


def _shown(kinds: tuple[Any, ...]) -> str:
    return ", ".join(
        f"{kind[1]} of {kind[0]} dimensions" if isinstance(kind, tuple) else str(kind)
        for kind in kinds
    )


class ByHand(_Paths):
    """The backward that the operator's author wrote."""

    def __call__(
        self, arguments: dict[str, Any], results: tuple[Any, ...], grads: tuple[Any, ...]
    ) -> dict[str, Any]:
        """The gradients of arguments by name."""
        inputs = inputs_of(self.signature, arguments)
        run = self.choose(arguments, inputs)
        found: dict[str, Any] = run(*inputs, *results, *filter(_differentiable, grads))
        return found


class ByReference(_Paths):
    """The derivative of the operator's reference, which JAX derives from its translation."""

    def __call__(
        self, arguments: dict[str, Any], results: tuple[Any, ...], grads: tuple[Any, ...]
    ) -> dict[str, Any]:
        """The gradients of arguments by name."""
        del results
        run = self.choose(arguments, inputs_of(self.signature, arguments))
        names = [
            parameter.name
            for parameter in self.signature.tensors
            if _differentiable(arguments[parameter.name])
        ]

        def reference(*values: Any) -> tuple[Any, ...]:
            given = {**arguments, **dict(zip(names, values, strict=True))}
            outputs = run(*inputs_of(self.signature, given))
            return tuple(filter(_differentiable, outputs))

        _, pull = jax.vjp(reference, *(arguments[name] for name in names))
        found = pull(tuple(filter(_differentiable, grads)))
        return dict(zip(names, found, strict=True))


def _differentiable(value: Any) -> bool:
    if isinstance(value, tuple):
        return bool(value) and all(_differentiable(item) for item in value)
    return value is not None and bool(jnp.issubdtype(value.dtype, jnp.inexact))
