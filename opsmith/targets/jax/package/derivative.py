"""Call the operator that computes an operator's gradients."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp


@dataclass(frozen=True)
class BackwardCall:
    """A backward that is an operator of the package itself.

    Attributes:
        functions: the package's functions by the names of their operators.
        given: the value of each of its parameters: an ``"argument"`` of the call by name, or a
            ``"result"`` or the ``"gradient"`` of a result by position.
        gradients: the position of each argument's gradient among its results.
    """

    functions: Mapping[str, Callable[..., Any]]
    name: str
    given: Mapping[str, tuple[str, str | int]]
    gradients: Mapping[str, int]

    def __call__(
        self, arguments: Mapping[str, Any], results: Sequence[Any], grads: Sequence[Any]
    ) -> dict[str, Any]:
        """Return the gradients of arguments by name.

        Args:
            grads: their gradients, of the shapes and dtypes of the results.
        """
        # PyTorch's gradient of a complex number is the conjugate of JAX's.
        values = {"argument": arguments, "result": results, "gradient": _conjugated(grads)}
        given: dict[str, Any] = {}
        for parameter, (kind, place) in self.given.items():
            given[parameter] = values[kind][place]
        returned = self.functions[self.name](**given)
        many = returned if isinstance(returned, tuple) else (returned,)
        return {name: _conjugated(many[place]) for name, place in self.gradients.items()}


def _conjugated(value: Any) -> Any:
    def one(array: Any) -> Any:
        return jnp.conj(array) if jnp.issubdtype(array.dtype, jnp.complexfloating) else array

    return jax.tree.map(one, value)
