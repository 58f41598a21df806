"""An operator's library for a Python module: its kernel and a generated adapter, nothing else."""

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
    """Why a Python module cannot call the operator by this kernel; `None` if it can."""
    return operator_export.obstacle(operator, kernel, "a Python module")


def symbol(signature: Signature) -> str:
    """The function that the library exports."""
    return f"opsmith_python__{signature.namespace}__{signature.name}"


def build(source: KernelSource) -> Path:
    """The library that the module calls; built, or from the cache.

    Raises:
        BuildError: it does not compile, or needs PyTorch.
        MissingDependencyError: there is no compiler.
    """
    return adapters.build(
        source,
        "python",
        adapter,
        title="Python",
        made_of=[_TEMPLATE, Path(__file__), *sorted(INCLUDE.rglob("*.h"))],
        include_dirs=[INCLUDE],
    )


def adapter(source: KernelSource) -> str:
    """The generated source that stands between the module and a kernel."""
    return adapters.source(
        _TEMPLATE,
        source.signature,
        HOST,
        strided=source.strided,
        symbol=symbol(source.signature),
    )
