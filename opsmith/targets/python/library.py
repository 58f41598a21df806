"""An operator's library for a Python module: its kernel and a generated adapter, nothing else."""

from __future__ import annotations

from pathlib import Path

from opsmith import kernels
from opsmith.errors import ExportError
from opsmith.kernels import HOST, KernelSource, adapters
from opsmith.operators import Operator
from opsmith.operators.kernel import Kernel
from opsmith.signature import Signature

_HERE = Path(__file__).parent
_TEMPLATE = _HERE / "adapter.cpp.j2"
INCLUDE = _HERE / "include"


def kernel_of(operator: Operator) -> KernelSource:
    """The kernel that a Python module can call.

    Raises:
        ExportError: the operator has none, or not one of this kind; says why, and what to do.
    """
    kernel = operator.kernels.get(HOST)
    problem = obstacle(operator, kernel)
    if problem is not None:
        raise ExportError(f"{operator.name}: {problem}")
    assert kernel is not None and kernel.entry is not None
    return kernel.entry


def obstacle(operator: Operator, kernel: Kernel | None) -> str | None:
    """Why a Python module cannot call the operator by this kernel; `None` if it can."""
    name = operator.signature.name
    if kernel is None or kernel.source is None:
        return (
            "a Python module without PyTorch calls a C++ kernel, and the operator has none for the "
            f'CPU. Add one: {name}.register_kernel("cpu", source="{name}.cpp").'
        )
    if kernel.entry is None:
        return (
            f"its CPU kernel {kernel.where} is written against PyTorch "
            f'(api="{kernel.source.api}"), which a Python module does without. Write it against '
            "<opsmith/kernel.h>."
        )
    if kernel.device != HOST:
        return f"a Python module calls kernels for the CPU, and this one is for {kernel.device}."
    return None


def symbol(signature: Signature) -> str:
    """The function that the library exports."""
    return f"opsmith_python__{signature.namespace}__{signature.name}"


def build(source: KernelSource) -> Path:
    """The library that the module calls; built, or from the cache.

    Raises:
        BuildError: it does not compile, or needs PyTorch.
        MissingError: there is no compiler.
    """
    signature = source.signature

    def render() -> dict[str, str]:
        files = adapters.kernel_files(signature)
        return {**files, f"{signature.name}_python.cpp": adapter(source)}

    files = [_TEMPLATE, Path(__file__), *sorted(INCLUDE.rglob("*.h"))]
    key = kernels.generated_key(signature, source.strided, *(file.read_bytes() for file in files))
    return source.build_beside(
        f"{signature.namespace}__{signature.name}__python",
        kernels.Generated(key, render),
        include_dirs=[INCLUDE],
        torch="none",
        what=f"{signature.qualname} (Python)",
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
