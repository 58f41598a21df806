"""Run an ONNX model in ONNX's own reference evaluator: slow, and independent of any runtime."""

from __future__ import annotations

from collections.abc import Sequence
from importlib import metadata

import torch
from torch import Tensor

from opsmith.errors import ArtifactError
from opsmith.operators.core.arguments import DTYPES
from opsmith.targets.exporting.artifact import Artifact
from opsmith.targets.exporting.protocol import Runner


def versions() -> dict[str, str]:
    """Return the versions of the packages that wrote the model."""
    return {name: metadata.version(name) for name in ("onnx", "onnxscript")}


class Evaluator(Runner):
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
        feeds = {spec.name: _array(value) for spec, value in zip(specs, inputs, strict=True)}
        outputs = self._evaluator.run([spec.name for spec in self._manifest.outputs], feeds)
        return [
            _tensor(value, spec.dtype)
            for value, spec in zip(outputs, self._manifest.outputs, strict=True)
        ]


def _array(value: Tensor) -> object:
    if value.dtype is torch.bfloat16:
        import ml_dtypes

        return value.view(torch.int16).numpy().view(ml_dtypes.bfloat16)
    return value.numpy()


def _tensor(value: object, dtype: str) -> Tensor:
    import numpy as np

    array = np.ascontiguousarray(value)
    if dtype == "bfloat16":
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    found = torch.from_numpy(array)
    # The evaluator computes some operators of narrow types in wider types.
    return found.to(DTYPES[dtype]) if found.is_floating_point() else found
