"""Run derivatives that were translated from PyTorch when the operator was exported."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp

from opsmith.errors import DifferentiationError
from opsmith.signature.model import Signature

#: Largest number of violated conditions that a message names.
_SHOWN = 3

Condition = tuple[str, Callable[..., Any], bool]
"""A condition's text, a function that checks it, and whether only memory layouts depend on it."""


@dataclass(frozen=True)
class Variant:
    """A path that PyTorch took through a derivative.

    Attributes:
        kinds: for each argument the properties that determine the path; see `kinds_of`.
        conditions: conditions that the inputs must meet.
        run: computes the outputs from the inputs.
    """

    kinds: tuple[Any, ...]
    conditions: Sequence[Condition]
    run: Callable[..., Any]


def kinds_of(signature: Signature, arguments: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the properties of a call, other than sizes and numbers, that determine the path.

    They are the rank and dtype of each tensor, also in lists, the length of each sequence of
    numbers, the absent arguments, and every bool and text.
    """

    def kind(value: Any) -> Any:
        if value is None or isinstance(value, bool | str):
            return value
        if isinstance(value, list | tuple):
            return tuple(map(kind, value))
        if isinstance(value, int | float):
            return "number"
        return value.ndim, str(value.dtype).removeprefix("torch.")

    return tuple(kind(arguments[name]) for name in signature.by_name)


def inputs_of(signature: Signature, arguments: Mapping[str, Any]) -> list[Any]:
    """Return the inputs of a path: the tensors that are present, and every int and float."""

    def flat() -> Iterator[Any]:
        for name in signature.by_name:
            value = arguments[name]
            for item in value if isinstance(value, list | tuple) else [value]:
                if item is not None and not isinstance(item, bool | str):
                    yield item

    return list(flat())


def small_sizes(signature: Signature, arguments: Mapping[str, Any]) -> tuple[Any, ...]:
    """Return the sizes of 0 or 1 in a call: argument, dimension and size of each."""
    return tuple(
        (parameter.name, axis, size)
        for parameter in signature.tensors
        if hasattr(arguments[parameter.name], "shape")
        for axis, size in enumerate(arguments[parameter.name].shape)
        if size < 2
    )


class _Paths:
    """A derivative.

    Args:
        signature: signature of the operator.
        variants: the paths through it.
        hindered: registered cases that could not be translated: `kinds_of` and `small_sizes` of
            each, and the reason.
    """

    def __init__(
        self,
        signature: Signature,
        variants: Sequence[Variant],
        hindered: Sequence[tuple[tuple[Any, ...], tuple[Any, ...], str]] = (),
    ) -> None:
        self.signature = signature
        self.variants = variants
        self.hindered = hindered

    def choose(self, arguments: Mapping[str, Any], inputs: Sequence[Any]) -> Callable[..., Any]:
        """Return the path for a call.

        Raises:
            DifferentiationError: no path for such a call was traced when the operator was exported.
        """
        kinds = kinds_of(self.signature, arguments)
        like = [variant for variant in self.variants if variant.kinds == kinds]
        failed_of = [failing(variant.conditions, inputs) for variant in like]
        for variant, failed in zip(like, failed_of, strict=True):
            if not failed:
                return variant.run
        # Sizes of 0 and 1 make PyTorch compare memory layouts, which do not matter in JAX.
        for variant, failed in zip(like, failed_of, strict=True):
            if all(minor for _, minor in failed):
                return variant.run
        name = self.signature.qualname
        small = small_sizes(self.signature, arguments)
        for known, sizes, why in self.hindered:
            if (known, sizes) == (kinds, small):
                raise DifferentiationError(
                    f"{name}: has no gradient in JAX for a call like this, which is registered "
                    f"(register_cases): {why}."
                )
        if like:
            missed = min(
                ([text for text, minor in failed if not minor] for failed in failed_of), key=len
            )
            # Short conditions help most: one differing number can violate dozens of long ones.
            shown = [text for text in missed if text in sorted(missed, key=len)[:_SHOWN]]
            rest = len(missed) - len(shown)
            more = f" (and {rest} more condition{'s' if rest > 1 else ''})" if rest else ""
            raise DifferentiationError(
                f"{name}: its derivative was translated for calls where {' and '.join(shown)}"
                f"{more}. Register a case like this call (register_cases) and export again."
            )
        raise DifferentiationError(
            f"{name}: its derivative was translated for calls with other dtypes, numbers of "
            f"dimensions, absent arguments, bools or texts than this one {_shown(kinds)}. "
            "Register a case like this call (register_cases) and export again."
        )


def failing(conditions: Sequence[Condition], inputs: Sequence[Any]) -> list[tuple[str, bool]]:
    """Return the conditions that a call violates, and whether only layouts depend on each.

    Args:
        conditions: conditions of a path.
        inputs: result of `inputs_of` for the call.
    """

    def holds(condition: Callable[..., Any]) -> bool:
        try:
            return bool(condition(*inputs))
        except ZeroDivisionError:
            return False  # The trace compared it only where the divisor was not 0.

    return [(text, minor) for text, condition, minor in conditions if not holds(condition)]


def _shown(kind: Any) -> str:
    match kind:
        case int(rank), str(dtype):
            return f"{dtype} of {rank} dimensions"
        case tuple():
            return f"({', '.join(map(_shown, kind))})"
    return "a number" if kind == "number" else repr(kind)


class ByHand(_Paths):
    """The backward that the operator's author wrote."""

    def __call__(
        self, arguments: dict[str, Any], results: tuple[Any, ...], grads: tuple[Any, ...]
    ) -> dict[str, Any]:
        """Return the gradients of arguments by name."""
        inputs = inputs_of(self.signature, arguments)
        run = self.choose(arguments, inputs)
        # PyTorch's gradient of a complex number is the conjugate of JAX's.
        given = [jnp.conj(grad) for grad in grads if _differentiable(grad)]
        found: dict[str, Any] = jax.tree.map(jnp.conj, run(*inputs, *results, *given))
        return found


class ByReference(_Paths):
    """The derivative of the operator's reference, which JAX derives from its translation."""

    def __call__(
        self, arguments: dict[str, Any], results: tuple[Any, ...], grads: tuple[Any, ...]
    ) -> dict[str, Any]:
        """Return the gradients of arguments by name."""
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
