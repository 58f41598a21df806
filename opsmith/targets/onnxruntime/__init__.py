"""Target ``onnxruntime``: an ONNX model, and a library for each operator that keeps its kernel."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from opsmith.targets.artifact import Artifact
from opsmith.targets.model import Model
from opsmith.targets.onnx.export import OPTIONS, missing_packages
from opsmith.targets.proof import Way
from opsmith.targets.protocol import Outcome, Runner, Target


class OnnxRuntimeTarget(Target):
    """ONNX Runtime on the CPU."""

    name = "onnxruntime"
    title = "ONNX Runtime"
    options = OPTIONS

    def available(self) -> str | None:
        """See `Target.available`."""
        return missing_packages("onnxruntime")

    def export(self, model: Model, folder: Path, options: Mapping[str, Any]) -> Outcome:
        """See `Target.export`."""
        from opsmith.targets.onnxruntime.bundle import bundle

        return bundle(model, folder, options)

    def load(self, artifact: Artifact) -> Runner:
        """See `Target.load`."""
        from opsmith.targets.onnxruntime.session import Session

        return Session(artifact)

    def proofs(self) -> Sequence[Way]:
        """See `Target.proofs`."""
        from opsmith.targets.onnxruntime.proofs import PROOFS

        return PROOFS


TARGET = OnnxRuntimeTarget()
