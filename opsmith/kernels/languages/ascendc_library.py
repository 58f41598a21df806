"""Ascend C that registers itself with PyTorch (``language="ascendc", api="torch"``)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opsmith.kernels.languages import ascendc
from opsmith.kernels.languages.torch_library import TorchLibrary

if TYPE_CHECKING:
    from opsmith.kernels.source import KernelSource
    from opsmith.kernels.toolchain.recipe import LinkedWith
    from opsmith.kernels.toolchain.units import Unit


class AscendCLibrary(TorchLibrary):
    """The language of Ascend C whose host code calls ``torch_npu`` and registers itself."""

    name = "Ascend C that registers itself"
    asked = ascendc.ASKED
    suffixes = ascendc.SUFFIXES
    emulates = ascendc.LANGUAGE.emulates

    def check(self, source: KernelSource) -> None:
        """Refuse a kernel that is not for an NPU."""
        ascendc.require_npu(source)

    def require(self, source: KernelSource, *, torch: bool = True) -> None:
        """Require CANN's compiler and a C++ compiler."""
        super().require(source, torch=torch)
        ascendc.find_bisheng(source.what)

    def unit(self, source: KernelSource) -> Unit:
        """Return the unit of a source, compiled by bisheng with CANN's headers."""
        return ascendc.by_bisheng(super().unit(source), source.what)

    def beside(self, source: KernelSource) -> LinkedWith:
        """Return the source's libraries, and CANN's runtime."""
        return ascendc.with_runtime(super().beside(source), source.what)


LANGUAGE = AscendCLibrary()
