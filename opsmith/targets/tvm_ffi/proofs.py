"""Define how `opsmith check` calls operators in a tvm-ffi module: from NumPy, PyTorch and JAX."""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from opsmith.operators import Operator
from opsmith.operators.core.arguments import map_tensors
from opsmith.operators.core.operator import Kernel
from opsmith.targets.exporting.conformance import OperatorProof
from opsmith.targets.exporting.loaded_artifact import LoadedOperators
from opsmith.targets.exporting.protocol import Route
from opsmith.targets.hosted.functions import called, counted
from opsmith.targets.tvm_ffi.export import obstacle


def _from_torch(
    loaded: LoadedOperators, operator: Operator, arguments: Mapping[str, Any]
) -> Sequence[Tensor]:
    given = {name: map_tensors(value, _plain) for name, value in arguments.items()}
    runner: Any = loaded.runner
    return counted(loaded, operator, lambda: runner.call(operator.name, given))


def _plain(tensor: Tensor) -> Tensor:
    """Return a tensor as tvm-ffi takes it: it ignores what is only done when a view is read."""
    return tensor.detach().resolve_conj().resolve_neg()


def _why_not_in_jax(operator: Operator, kernel: Kernel) -> str | None:
    """Return why jax-tvm-ffi cannot call the operator, or `None` if it can."""
    signature = operator.signature
    ordered = sorted(signature.parameters, key=lambda p: p not in signature.tensors)
    single = all(p.is_tensor or p.is_scalar for p in ordered)
    written = signature.mutated or signature.data_dependent
    if (
        ordered != list(signature.parameters)
        or not single
        or written
        or any(p.optional for p in ordered)
    ):
        return (
            "jax-tvm-ffi passes arrays, of which none is written, then numbers and texts, and "
            "memory for results whose sizes are known; and no lists and no None."
        )
    if importlib.util.find_spec("jax_tvm_ffi") is None:
        return "jax-tvm-ffi is not installed. Get it: pip install jax-tvm-ffi"
    return obstacle(operator, kernel)


def _from_jax(
    loaded: LoadedOperators, operator: Operator, arguments: Mapping[str, Any]
) -> Sequence[Tensor]:
    """Call the function with the memory of its results, which JAX allocates."""
    import jax
    import jax_tvm_ffi

    signature = operator.signature
    arrays = [parameter.name for parameter in signature.tensors]
    others = {p.name: arguments[p.name] for p in signature.parameters if p.name not in arrays}
    target = f"{operator.name} in {loaded.artifact.folder}"
    if target not in _REGISTERED:
        runner: Any = loaded.runner
        function = runner.module.MODULE[
            loaded.artifact.manifest.details["attributes"][operator.name]
        ]
        spec = ["args", *(f"attrs.{other}" for other in others), "rets"]
        jax_tvm_ffi.register_ffi_target(target, function, spec)
        _REGISTERED.add(target)
    with jax.enable_x64(True):
        made = [jax.dlpack.from_dlpack(one) for one in _from_torch(loaded, operator, arguments)]
        call = jax.ffi.ffi_call(
            target, [jax.ShapeDtypeStruct(one.shape, one.dtype) for one in made]
        )
        given = [jax.dlpack.from_dlpack(_plain(arguments[one]).contiguous()) for one in arrays]

        def run() -> Any:
            return jax.block_until_ready(call(*given, **others))

        # XLA omits calls whose results are all empty.
        results = counted(loaded, operator, run) if any(one.size for one in made) else run()
        return [torch.from_dlpack(one) for one in results]


#: The functions that XLA knows in this process, by their names there.
_REGISTERED: set[str] = set()

PROOFS: tuple[Route, ...] = (
    OperatorProof(
        name="tvm_ffi",
        summary="the function of the tvm-ffi module gives right results for NumPy's arrays",
        what="the tvm-ffi module",
        obstacle=obstacle,
        run=called,
        timed="tvm_ffi",
    ),
    OperatorProof(
        name="tvm_ffi_torch",
        summary="... and for tensors of PyTorch",
        what="the tvm-ffi module, called with tensors of PyTorch",
        obstacle=obstacle,
        run=_from_torch,
    ),
    OperatorProof(
        name="tvm_ffi_jax",
        summary="... and writes right ones into JAX's memory",
        what="the tvm-ffi module, called by JAX",
        obstacle=_why_not_in_jax,
        run=_from_jax,
    ),
)
