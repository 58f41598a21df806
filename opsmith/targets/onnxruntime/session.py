"""Run an artifact in ONNX Runtime."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from opsmith.errors import ArtifactError, OpsmithError
from opsmith.kernels import HOST
from opsmith.operators.core.arguments import DTYPES, dtype_name
from opsmith.system import machine
from opsmith.targets.exporting.artifact import Artifact
from opsmith.targets.exporting.ml_dtypes import WORDS
from opsmith.targets.exporting.protocol import Runner
from opsmith.targets.onnx.node import ELEMENT_TYPES
from opsmith.targets.onnxruntime.providers import PROVIDERS, open_session

_SILENT = 4


class OnnxRuntimeSession(Runner):
    """An artifact in an ONNX Runtime session.

    Attributes:
        session: the ``onnxruntime.InferenceSession``.
    """

    def __init__(self, artifact: Artifact, options: Any = None) -> None:
        import onnxruntime

        manifest, details = artifact.manifest, artifact.manifest.details
        self._inputs = [spec.name for spec in manifest.inputs]
        self._outputs = [spec.name for spec in manifest.outputs]
        dtypes = {spec.dtype for spec in (*manifest.inputs, *manifest.outputs)}
        self._plain = not dtypes & set(WORDS)
        require_this_machine(artifact)
        options = silent_options() if options is None else options
        libraries = [str(artifact.path(name).resolve()) for name in details["libraries"]]
        model = str(artifact.path(details["model"]))
        providers = details.get("providers") or [PROVIDERS[HOST].name]
        try:
            for library in libraries:
                options.register_custom_ops_library(library)
            self.session = open_session(model, options, providers)
        except Exception as error:
            raise ArtifactError(
                f"ONNX Runtime {onnxruntime.__version__} does not load {artifact.folder}: {error}"
            ) from error

    def run(self, inputs: Sequence[Tensor]) -> list[Tensor]:
        """Run the session once."""
        named = dict(zip(self._inputs, inputs, strict=True))
        if self._plain:
            # NumPy arrays are cheaper than OrtValues, whose results are copied.
            arrays = {name: tensor.cpu().numpy() for name, tensor in named.items()}
            with as_runtime_errors():
                found = self.session.run(self._outputs, arrays)
            results = [torch.from_numpy(np.asarray(value)) for value in found]
        else:
            feeds = {name: to_ort(tensor) for name, tensor in named.items()}
            with as_runtime_errors():
                values = self.session.run_with_ort_values(self._outputs, feeds)
            results = [from_ort(value) for value in values]
        # ONNX Runtime's inputs and outputs here are in host memory, whatever the provider.
        device = inputs[0].device if inputs else torch.device(HOST)
        return results if device.type == HOST else [result.to(device) for result in results]


@contextmanager
def as_runtime_errors() -> Iterator[None]:
    """Convert exceptions of ONNX Runtime to `RuntimeError`, from which its own do not derive."""
    try:
        yield
    except RuntimeError:
        raise
    except Exception as error:
        raise OpsmithError(str(error)) from error


def require_this_machine(artifact: Artifact) -> None:
    """Refuse libraries that were compiled for another kind of machine."""
    details = artifact.manifest.details
    if not details["libraries"]:
        return
    machine.require(
        f"{artifact.folder} has operator libraries",
        details["platform"],
        machine.platform_name(),
        details["processor"],
        "Export it here, or in the inline form",
    )


def silent_options() -> Any:
    """Return options of a session that logs nothing: its exceptions contain the messages."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = _SILENT
    return options


def to_ort(tensor: Tensor) -> Any:
    """Return a contiguous tensor as an ``OrtValue`` in host memory."""
    import onnxruntime

    tensor, name = tensor.cpu(), dtype_name(tensor.dtype)  # NumPy lacks those of `WORDS`
    if name in WORDS:
        return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(
            tensor.view(WORDS[name]).numpy(), ELEMENT_TYPES[name]
        )
    return onnxruntime.OrtValue.ortvalue_from_numpy(tensor.numpy())


def from_ort(value: Any) -> Tensor:
    """Return an ``OrtValue`` as a tensor; dtypes that NumPy lacks are copied."""
    name = next((name for name in WORDS if ELEMENT_TYPES[name] == value.element_type()), None)
    if name is None:
        return torch.from_numpy(value.numpy())
    found = torch.empty(value.shape(), dtype=DTYPES[name])
    if found.numel():
        ctypes.memmove(found.data_ptr(), value.data_ptr(), found.numel() * found.element_size())
    return found
