"""CUDA whose numbers are never rounded, emulated on the CPU, for the checks."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from opsmith.kernels.languages.emulated_cuda.language import INCLUDE, CudaOnCpu
from opsmith.kernels.languages.exact import defining, with_exact_numbers
from opsmith.kernels.toolchain.units import Unit

if TYPE_CHECKING:
    from opsmith.kernels.source import KernelSource

_CUDA = ("opsmith/cuda.h", "emulated/cuda.h")


class ExactCuda(CudaOnCpu):
    """The language CUDA, emulated on the CPU with numbers that are never rounded."""

    name = "CUDA on the CPU, exact"

    def __init__(self) -> None:
        super().__init__(watched=False)

    def unit(self, source: KernelSource) -> Unit:
        """Return the unit of the rewritten source, with other numbers."""
        # The emulation's own headers are about a kernel's numbers, so they come after these.
        included = [name for name, _ in self.own_code(source).included if name.startswith("<")]
        headers = [name for name in included if not _is_of_cuda(name[1:-1])]
        after = tuple(f"<{header}>" for header in reversed(_CUDA))
        return with_exact_numbers(source, super().unit(source), headers, after)

    def beside(self, source: KernelSource) -> dict[str, Any]:
        """Return the options that link an adapter with the emulator's runtime."""
        return defining(super().beside(source))


def _is_of_cuda(header: str) -> bool:
    return header in _CUDA or (INCLUDE / header).is_file()


EXACT_CUDA = ExactCuda()


def exact_emulated(source: KernelSource) -> KernelSource:
    """Return a CUDA source to compile for the CPU, with numbers that are never rounded."""
    return replace(source, language=EXACT_CUDA)
