"""Load an artifact into this process, and convert PyTorch's tensors to JAX and back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from opsmith.targets.exporting.artifact import Artifact
from opsmith.targets.exporting.ml_dtypes import array_of, tensor_of
from opsmith.targets.exporting.packages.writer import PackageFunctions
from opsmith.targets.jax.vendor import place_of


class JaxFunctions(PackageFunctions):
    """The functions of an artifact."""

    def __init__(self, artifact: Artifact) -> None:
        super().__init__(artifact, place_of("errors"))

    def run(self, name: str, arguments: Mapping[str, Any]) -> Sequence[Tensor]:
        """Call a function with JAX arrays, and return its results as tensors."""
        with wide():
            given = {key: to_jax(value) for key, value in arguments.items()}
            returned = self.functions[name](**given)
            return [to_torch(value) for value in arrays_of(returned)]


def wide() -> Any:
    """Return a block in which JAX supports 64-bit arrays."""
    import jax
    import jax.experimental

    # This function moved in JAX 0.8.
    place: Any = jax if hasattr(jax, "enable_x64") else jax.experimental
    return place.enable_x64(True)


def to_jax(value: Any) -> Any:
    """Convert a tensor to an array that shares no memory with it, and a list item by item.

    Other values are returned unchanged.
    """
    import jax

    if isinstance(value, list | tuple):
        return [to_jax(item) for item in value]
    if not isinstance(value, Tensor):
        return value
    array = array_of(value.detach().resolve_conj().resolve_neg().contiguous())
    # Copy, since `device_put` may share memory; `jax.numpy.array` would compile for each shape.
    return jax.device_put(array.copy())


def arrays_of(returned: Any) -> list[Any]:
    """Return the arrays that a function returned, those in lists among them."""
    import jax

    found: list[Any] = jax.tree.leaves(returned)
    return found


def to_torch(value: Any) -> Tensor:
    """Return an array as a tensor that shares no memory with it."""
    import numpy as np

    return tensor_of(np.array(value))
