"""Target ``onnxruntime``: an ONNX model, and a library for each operator that keeps its kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from opsmith.kernels import HOST
from opsmith.targets.exporting.artifact import Artifact
from opsmith.targets.exporting.model import Model
from opsmith.targets.exporting.protocol import ModelTarget, Option, Outcome, Route, Runner
from opsmith.targets.onnx.export import INSTALL, OPTIONS, PACKAGES, PAGE
from opsmith.targets.onnxruntime.providers import PROVIDERS

_PROVIDER = Option(
    "provider",
    "what runs the model: ONNX Runtime's provider for the CPU, or that for CUDA, for which every "
    "operator in the library form has to have a CUDA kernel",
    default=HOST,
    choices=tuple(PROVIDERS),
)


class OnnxRuntimeTarget(ModelTarget):
    """ONNX Runtime with its execution providers for the CPU and for CUDA."""

    name = "onnxruntime"
    title = "ONNX Runtime"
    options = (*OPTIONS, _PROVIDER)
    packages = ("onnxruntime", *PACKAGES)
    prepares = ("torch.onnx",)
    install = INSTALL
    page = PAGE

    def export_model(self, model: Model, folder: Path, options: Mapping[str, Any]) -> Outcome:
        """Write the ONNX model, the operator libraries and a program that runs them."""
        from opsmith.targets.onnxruntime.bundle import bundle

        return bundle(model, folder, options)

    def load_model(self, artifact: Artifact) -> Runner:
        """Start an ONNX Runtime session."""
        from opsmith.targets.onnxruntime.session import OnnxRuntimeSession

        return OnnxRuntimeSession(artifact)

    def proofs(self) -> Sequence[Route]:
        """Return the routes through ONNX Runtime."""
        from opsmith.targets.onnxruntime.proofs import PROOFS

        return PROOFS


TARGET = OnnxRuntimeTarget()
