"""Target ``onnx``: a file that any ONNX runtime can run, with no library beside it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from opsmith.targets.artifact import Artifact
from opsmith.targets.model import Model
from opsmith.targets.onnx.export import INSTALL, MODEL, OPTIONS, PACKAGES, PAGE, export
from opsmith.targets.protocol import ModelTarget, Outcome, Runner


class OnnxTarget(ModelTarget):
    """ONNX alone: custom operators become standard ones; ONNX's own evaluator runs the result."""

    name = "onnx"
    title = "ONNX"
    options = OPTIONS
    packages = PACKAGES
    install = INSTALL
    page = PAGE

    def export_model(self, model: Model, folder: Path, options: Mapping[str, Any]) -> Outcome:
        """See `ModelTarget.export_model`."""
        from opsmith.targets.onnx.evaluator import versions

        exported = export(model, folder, options, library=None)
        details = {"model": MODEL, "opset": exported.opset, "exporter": options["exporter"]}
        return Outcome(exported.uses, versions(), details)

    def load_model(self, artifact: Artifact) -> Runner:
        """See `ModelTarget.load_model`."""
        from opsmith.targets.onnx.evaluator import Evaluator

        return Evaluator(artifact)


TARGET = OnnxTarget()
