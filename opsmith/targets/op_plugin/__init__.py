"""Target ``op_plugin``: operators for `torch_npu`, by OpPlugin and by TorchAir's graphs."""

from __future__ import annotations

from opsmith.targets.exporting.protocol import Option, Route
from opsmith.targets.hosted.target import PackageTarget


class OpPluginTarget(PackageTarget):
    """Sources for NPUs, which CANN's own API of an operator runs."""

    name = "op_plugin"
    title = "OpPlugin"
    options = (Option("op_type", "type in CANN; by default in CamelCase", by_operator=True),)
    page = "docs/reference/npu.md"

    def proofs(self) -> tuple[Route, ...]:
        """Return no routes: nothing that is written runs without an NPU."""
        return ()


TARGET = OpPluginTarget()
