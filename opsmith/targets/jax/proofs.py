"""How `opsmith check` runs operators in JAX."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor

from opsmith.errors import CheckError
from opsmith.operators import Operator
from opsmith.targets.jax.library import obstacle
from opsmith.targets.loaded import LoadedOperators
from opsmith.targets.proof import OperatorProof, Route


def _called(
    loaded: LoadedOperators, operator: Operator, arguments: Mapping[str, Any]
) -> Sequence[Tensor]:
    function: Any = loaded[operator.name]
    before = function.library.calls()
    results = loaded.runner.run(operator.name, arguments)
    # XLA leaves out calls whose results are all empty.
    if function.library.calls() == before and any(result.numel() for result in results):
        raise CheckError("did not run the kernel")
    return results


def _batched(
    loaded: LoadedOperators, operator: Operator, arguments: Mapping[str, Any]
) -> Sequence[Tensor]:
    """The same call twice, as the samples of a batch; the second sample's results."""
    import jax
    import jax.numpy as jnp

    from opsmith.targets.jax.runner import to_jax, to_torch, wide

    tensors = [parameter.name for parameter in operator.signature.tensors]
    with wide():
        given = {name: to_jax(value) for name, value in arguments.items()}
        arrays = {name: given.pop(name) for name in tensors}
        twice = jax.tree.map(lambda array: jnp.stack([array, array]), arrays)
        returned = jax.vmap(lambda every: loaded[operator.name](**every, **given))(twice)
        many = returned if isinstance(returned, tuple) else (returned,)
        return [to_torch(value[1]) for value in many]


def _no_batch(operator: Operator, kernel: object) -> str | None:
    if not operator.signature.tensors:
        return "takes no tensor"
    return obstacle(operator, kernel)


PROOFS: tuple[Route, ...] = (
    OperatorProof(
        name="jax",
        summary="the function for JAX gives right results",
        what="JAX",
        obstacle=obstacle,
        run=_called,
    ),
    OperatorProof(
        name="jax-vmap",
        summary="jax.vmap gives each sample the result of a call",
        what="jax.vmap",
        obstacle=_no_batch,
        run=_batched,
    ),
)
