"""Target ``onnx``: a file that any ONNX runtime can run, without a library beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from opsmith.targets.exporting.artifact import Artifact
from opsmith.targets.exporting.model import Model
from opsmith.targets.exporting.protocol import ModelTarget, Outcome, Runner
from opsmith.targets.exporting.readme import write_readme
from opsmith.targets.onnx.export import INSTALL, MODEL, OPTIONS, PACKAGES, PAGE, export


class OnnxTarget(ModelTarget):
    """ONNX alone: custom operators become standard ones; ONNX's own evaluator runs the result."""

    name = "onnx"
    title = "ONNX"
    options = OPTIONS
    packages = PACKAGES
    install = INSTALL
    page = PAGE

    def export_model(self, model: Model, folder: Path, options: Mapping[str, Any]) -> Outcome:
        """Write the ONNX file and a README."""
        from opsmith.targets.onnx.evaluator import versions

        exported = export(model, folder, options, library=None)
        details = {
            "model": MODEL,
            "opset": exported.opset,
            "exporter": options["exporter"],
            "foreign": list(exported.foreign),
        }
        unverified = _unverified(exported.foreign)
        how = [f"`{MODEL}` is of opset {exported.opset}. Any runtime that has it runs it alone."]
        if unverified:
            how = [
                f"`{MODEL}` is of opset {exported.opset}.",
                "",
                f"**Not verified:** {unverified}",
            ]
        write_readme(folder, model, "An ONNX model", how, exported.uses)
        return Outcome(exported.uses, versions(), details, unverified, exported.conditions)

    def load_model(self, artifact: Artifact) -> Runner:
        """Load the ONNX file in ONNX's reference evaluator."""
        from opsmith.targets.onnx.evaluator import Evaluator

        return Evaluator(artifact)


def _unverified(foreign: Sequence[str]) -> str:
    if not foreign:
        return ""
    nodes = ", ".join(foreign)
    return (
        f"ONNX does not define {nodes}, so that nothing here can run the model. It is for a "
        "runtime that has an operator of that name; compare its results with PyTorch's there."
    )


TARGET = OnnxTarget()
