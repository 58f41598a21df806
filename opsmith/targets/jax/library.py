"""Build an operator's library for JAX: its kernel and a generated adapter, nothing else."""

from __future__ import annotations

from pathlib import Path

from opsmith.kernels import HOST, KernelSource, adapters
from opsmith.operators import Operator
from opsmith.operators.core.operator import Kernel
from opsmith.signature import Signature
from opsmith.signature.parameters import Parameter
from opsmith.targets.exporting import operator_export

_HERE = Path(__file__).parent
_TEMPLATE = _HERE / "adapter.cpp.j2"
INCLUDE = _HERE / "include"


def obstacle(operator: Operator, kernel: Kernel | None) -> str | None:
    """Return why JAX cannot call the operator by this kernel, or `None` if it can."""
    problem = operator_export.obstacle(operator, kernel, "JAX")
    if problem is not None:
        return problem
    signature = operator.signature
    if signature.data_dependent:
        return (
            f"only the data decides the size {signature.data_dependent[0]!r} of its result, and "
            "JAX compiles programs whose sizes are all known. Declare an upper limit of the size "
            "as a result of that size, with the count beside it."
        )
    for result in signature.results:
        if result.tensor_type.shape is None:
            return (
                f"the shape of its result {result.name!r} is not declared ({result.type}), and JAX "
                "compiles programs whose sizes are all known. Declare the shape."
            )
    return None


def symbol(signature: Signature) -> str:
    """Return the name of the function that the library exports."""
    return f"opsmith_jax__{signature.namespace}__{signature.name}"


def build(source: KernelSource) -> Path:
    """Build the library that JAX calls, or find it in the cache.

    Raises:
        BuildError: the kernel does not compile, or needs PyTorch.
        MissingDependencyError: there is no compiler.
    """
    import jax.ffi

    return adapters.build(
        source,
        "jax",
        adapter,
        title="JAX",
        made_of=[_TEMPLATE, Path(__file__)],
        include=INCLUDE,
        include_dirs=[Path(jax.ffi.include_dir())],
    )


def is_counted(signature: Signature) -> bool:
    """Return whether a call passes the number of buffers of each tensor argument."""
    return any(p.optional or p.is_tensor_list for p in signature.tensors)


def adapter(source: KernelSource) -> str:
    """Generate the source that connects XLA with a kernel."""
    signature = source.signature
    return adapters.source(
        _TEMPLATE,
        signature,
        HOST,
        symbol=symbol(signature),
        counted=is_counted(signature),
        sources={p.name: _source(signature, p) for p in signature.parameters},
    )


def _source(signature: Signature, parameter: Parameter) -> str:
    """Return the C++ expression for an argument."""
    if parameter not in signature.tensors:
        optional = "true" if parameter.optional else "false"
        return f"frame, {adapters.quote(parameter.name)}, {optional}"
    index = signature.tensors.index
    given = f"frame.argument({index(parameter)})"
    if not parameter.mutated:
        return given
    # The new contents follow the results; an absent argument has no new contents.
    before = signature.mutated[: signature.mutated.index(parameter)]
    position = " + ".join(
        [
            str(len(signature.results)),
            *(
                f"frame.count({index(p)})" if p.optional or p.is_tensor_list else "1"
                for p in before
            ),
        ]
    )
    return f"{given}, frame, {position}"
