"""Build an operator's library for a Python module: its kernel and a generated adapter."""

from __future__ import annotations

from pathlib import Path

from opsmith.kernels import HOST, KernelSource, adapters
from opsmith.operators import Operator
from opsmith.operators.core.operator import Kernel
from opsmith.signature import Signature
from opsmith.targets.exporting import operator_export

_HERE = Path(__file__).parent
_TEMPLATE = _HERE / "adapter.cpp.j2"
INCLUDE = _HERE / "include"


def obstacle(operator: Operator, kernel: Kernel | None) -> str | None:
    """Return why a Python module cannot call the operator by this kernel, or `None` if it can."""
    return operator_export.obstacle(operator, kernel, "a Python module")


def symbol(signature: Signature) -> str:
    """Return the name of the function that the library exports."""
    return f"opsmith_python__{signature.namespace}__{signature.name}"


def build(source: KernelSource) -> Path:
    """Build the library that the module calls, or find it in the cache.

    Raises:
        BuildError: the kernel does not compile, or needs PyTorch.
        MissingDependencyError: there is no compiler.
    """
    return adapters.build(
        source,
        "python",
        adapter,
        title="Python",
        made_of=[_TEMPLATE, Path(__file__)],
        include=INCLUDE,
    )


def adapter(source: KernelSource) -> str:
    """Generate the source that connects the module with a kernel."""
    return adapters.source(
        _TEMPLATE,
        source.signature,
        HOST,
        strided=source.strided,
        symbol=symbol(source.signature),
    )
