"""Target ``onnx``: a file that any ONNX runtime can run, without a library beside it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from opsmith.errors import ArtifactError
from opsmith.operators.core.arguments import DTYPES
from opsmith.targets.exporting.artifact import Artifact
from opsmith.targets.exporting.ml_dtypes import array_of
from opsmith.targets.exporting.model import Model
from opsmith.targets.exporting.protocol import ModelTarget, Outcome, Runner
from opsmith.targets.exporting.readme import write_readme
from opsmith.targets.onnx.export import INSTALL, MODEL, OPTIONS, PACKAGES, PAGE, export, versions


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
        return _Evaluator(artifact)


def _unverified(foreign: Sequence[str]) -> str:
    if not foreign:
        return ""
    nodes = ", ".join(foreign)
    return (
        f"ONNX does not define {nodes}, so that nothing here can run the model. It is for a "
        "runtime that has an operator of that name; compare its results with PyTorch's there."
    )


class _Evaluator(Runner):
    """A model that ONNX's reference evaluator runs."""

    def __init__(self, artifact: Artifact) -> None:
        from onnx.reference import ReferenceEvaluator

        self._manifest = artifact.manifest
        foreign = artifact.manifest.details.get("foreign")
        if foreign:
            raise ArtifactError(
                f"{artifact.folder} has nodes that ONNX does not define ({', '.join(foreign)}): "
                "only a runtime that has operators of these names runs it."
            )
        self._evaluator = ReferenceEvaluator(str(artifact.path(artifact.manifest.details["model"])))

    def run(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """Run the model once."""
        specs = self._manifest.inputs
        feeds = {spec.name: array_of(value) for spec, value in zip(specs, inputs, strict=True)}
        outputs = self._evaluator.run([spec.name for spec in self._manifest.outputs], feeds)
        return [
            _tensor(value, spec.dtype)
            for value, spec in zip(outputs, self._manifest.outputs, strict=True)
        ]


def _tensor(value: object, dtype: str) -> Tensor:
    import numpy as np

    array = np.ascontiguousarray(value)
    if dtype == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    found = torch.from_numpy(array)
    # The evaluator computes some operators of narrow types in wider types.
    return found.to(DTYPES[dtype]) if found.is_floating_point() else found


TARGET = OnnxTarget()
