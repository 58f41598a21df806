"""Define how `opsmith check` runs operators in JAX."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from opsmith.errors import CheckError
from opsmith.operators import Operator
from opsmith.operators.core.arguments import DTYPES
from opsmith.operators.core.operator import Kernel
from opsmith.operators.core.source_location import where_written
from opsmith.signature import Parameter
from opsmith.targets.exporting.conformance import GradientProof, OperatorProof, OwnCall
from opsmith.targets.exporting.loaded_artifact import LoadedOperators
from opsmith.targets.exporting.protocol import Route
from opsmith.targets.jax.library import obstacle
from opsmith.targets.jax.runner import arrays_of, to_jax, to_torch, wide

#: A case's program runs only once, so leave out LLVM's optimizations, and XLA's fused loops, which
#: take half of the compile time.
_QUICKLY = {
    "xla_backend_optimization_level": 0,
    "xla_llvm_disable_expensive_passes": True,
    "xla_cpu_use_fusion_emitters": False,
    "xla_cpu_parallel_codegen_split_count": 1,
}


def _called(
    loaded: LoadedOperators, operator: Operator, arguments: Mapping[str, Any]
) -> Sequence[Tensor]:
    function: Any = loaded[operator.name]
    before = function.library.calls()
    results = loaded.runner.run(operator.name, arguments)
    # XLA omits calls whose results are all empty.
    if function.library.calls() == before and any(result.numel() for result in results):
        raise CheckError("did not run the kernel")
    return results


def _batched(
    loaded: LoadedOperators, operator: Operator, arguments: Mapping[str, Any]
) -> Sequence[Tensor]:
    """Make the same call twice, as the samples of a batch; return the second sample's results."""
    import jax

    tensors = {parameter.name for parameter in operator.signature.tensors}
    others = {name: value for name, value in arguments.items() if name not in tensors}
    # Stack and select in PyTorch: JAX would compile a program for each shape.
    twice = {name: _doubled(arguments[name]) for name in tensors}
    with wide():
        given, samples = ({k: to_jax(v) for k, v in each.items()} for each in (others, twice))
        call = jax.vmap(lambda every: loaded[operator.name](**every, **given), axis_size=2)
        # `samples` may hold no array, so the size of the batch is given above.
        returned = jax.jit(call, compiler_options=_quickly())(samples)
        return [to_torch(value)[1] for value in arrays_of(returned)]


@functools.cache
def _quickly() -> dict[str, Any]:
    """Return the options of `_QUICKLY` that this release of XLA supports."""
    import jax

    def is_known(name: str) -> bool:
        try:
            jax.jit(lambda: 0, compiler_options={name: _QUICKLY[name]}).lower().compile()
        except RuntimeError:
            return False
        return True

    return {name: value for name, value in _QUICKLY.items() if is_known(name)}


def _own_call(loaded: LoadedOperators, operator: Operator) -> OwnCall:
    """Return the function's call outside of compiled code, with the wait for its results.

    From then on JAX has 64-bit numbers in this process. Users who need them set this option once,
    so it is not part of the timed call.
    """
    import jax

    jax.config.update("jax_enable_x64", True)
    function: Any = loaded[operator.name]

    def call(**arguments: Any) -> Any:
        return jax.block_until_ready(function(**arguments))

    def taken(arguments: Mapping[str, Any]) -> dict[str, Any]:
        return {name: to_jax(value) for name, value in arguments.items()}

    def given(returned: Any, arguments: Mapping[str, Any]) -> list[Tensor]:
        del arguments
        return [to_torch(value) for value in arrays_of(returned)]

    return OwnCall(call, taken, given)


def _doubled(value: Any) -> Any:
    """Return a tensor as two equal samples of a batch; a list of tensors item by item."""
    if isinstance(value, list | tuple):
        return [_doubled(item) for item in value]
    return torch.stack([value, value]) if isinstance(value, Tensor) else value


def _differentiated(
    loaded: LoadedOperators,
    operator: Operator,
    arguments: Mapping[str, Any],
    cotangents: Sequence[Tensor],
) -> Sequence[Tensor]:
    """Return the gradients that JAX computes."""
    import jax
    import jax.numpy as jnp

    names = [p.name for p in operator.signature.tensors]
    leaves, structure = jax.tree.flatten([arguments[name] for name in names])
    wanted = [position for position, leaf in enumerate(leaves) if leaf.requires_grad]
    others = {name: value for name, value in arguments.items() if name not in names}

    def gradients(arrays: list[Any], cotangents: list[Any]) -> Any:
        def call(moved: list[Any]) -> list[Any]:
            every = list(arrays)
            for position, array in zip(wanted, moved, strict=True):
                every[position] = array
            tensors = dict(zip(names, jax.tree.unflatten(structure, every), strict=True))
            returned = loaded[operator.name](**others, **tensors)
            many = returned if isinstance(returned, tuple) else (returned,)
            return [value for value in many if jnp.issubdtype(value.dtype, jnp.inexact)]

        _, pull = jax.vjp(call, [arrays[position] for position in wanted])
        return pull(cotangents)[0]

    with wide():
        # Compile one program per case, since compilation takes most of the time.
        compiled = jax.jit(gradients, compiler_options=_quickly())
        arrays = [to_jax(leaf) for leaf in leaves]
        # PyTorch's gradient of a complex number is the conjugate of JAX's.
        found = compiled(arrays, [to_jax(cotangent.conj()) for cotangent in cotangents])
        return [to_torch(gradient).conj().resolve_conj() for gradient in found]


def _no_gradient(operator: Operator, kernel: Kernel) -> str | None:
    from opsmith.targets.jax.export import gradient_of

    signature, rule = operator.signature, operator.rule
    problem = obstacle(operator, kernel)
    if problem is not None:
        return problem
    if rule.backward is None and not rule.reference:
        return "has no gradient"
    if not any(_may_be_float(parameter) for parameter in signature.tensors):
        return "takes no tensor that has a gradient"
    gradient = gradient_of(operator)
    return gradient if isinstance(gradient, str) else None


def _may_be_float(parameter: Parameter) -> bool:
    type_ = parameter.tensor_type
    names = type_.dtypes.names if type_ is not None else ()
    return any(DTYPES[name].is_floating_point or DTYPES[name].is_complex for name in names)


def _no_batch(operator: Operator, kernel: Kernel) -> str | None:
    if not operator.signature.tensors:
        return "takes no tensor"
    return obstacle(operator, kernel)


def _derivative(operator: Operator) -> str:
    assert operator.rule.backward is not None
    return f"backward: {where_written(operator.rule.backward)}"


PROOFS: tuple[Route, ...] = (
    OperatorProof(
        name="jax",
        summary="the function for JAX gives right results",
        what="JAX",
        obstacle=obstacle,
        run=_called,
        timed="jax",
        own_call=_own_call,
    ),
    OperatorProof(
        name="jax-vmap",
        summary="jax.vmap gives each sample the result of a call",
        what="jax.vmap",
        obstacle=_no_batch,
        run=_batched,
        compiles=True,
        needs=("vmap", "parallel-dims"),
    ),
    GradientProof(
        name="jax-gradient",
        summary="the function for JAX has right gradients",
        what="JAX",
        obstacle=_no_gradient,
        about=_derivative,
        differentiate=_differentiated,
    ),
)
