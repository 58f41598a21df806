"""Build the harness's library of a CUDA kernel behind PyTorch's host code, for the CPU."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from opsmith.kernels.codegen.render import render
from opsmith.kernels.languages.emulated_cuda import device_library
from opsmith.kernels.source import KernelSource
from opsmith.kernels.toolchain.units import Generated
from opsmith.system.files import key_of

_HERE = Path(__file__).parent
_TEMPLATE = _HERE / "torch_adapter.cpp.j2"
_INCLUDE = _HERE / "include"
_CALL = _HERE / "torch" / "call.cpp"


def library(source: KernelSource, names: list[str]) -> Path:
    """Build the library by which the harness calls an emulated kernel with ``api="torch"``.

    Args:
        source: the kernel, compiled for the CPU.
        names: the results' names, for messages.

    Raises:
        BuildError: the kernel does not compile.
        MissingDependencyError: the source uses what is not emulated.
    """
    signature = source.signature
    source.language.require(source)
    device = device_library("opsmith_torch_on_cpu", (_CALL,), (_INCLUDE,))

    def files() -> dict[str, str]:
        text = render(
            _TEMPLATE,
            signature,
            names=names,
        )
        return {f"{signature.name}_harness.cpp": text}

    headers = sorted(_INCLUDE.rglob("*.h"))
    parts = [signature.qualname, signature.schema(), *names, _TEMPLATE.read_text()]
    key = key_of([*parts, *(header.read_text() for header in headers), str(device)])
    links = (*source.link_libraries, str(device), f"-Wl,-rpath,{device.parent}")
    return replace(source, link_libraries=links).build_beside(
        f"{signature.namespace}__{signature.name}__torch_on_cpu",
        Generated(key, files),
        torch="full",
        what=f"{signature.qualname} (cuda, on the CPU)",
        include_dirs=[_INCLUDE],
    )
