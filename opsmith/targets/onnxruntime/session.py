"""Running an artifact in ONNX Runtime."""

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
from opsmith.kernels.build import machine
from opsmith.operators.core.arguments import DTYPES, dtype_name
from opsmith.targets.exporting.artifact import Artifact
from opsmith.targets.exporting.protocol import Runner
from opsmith.targets.onnx.node import ELEMENT_TYPES
from opsmith.targets.onnxruntime.providers import PROVIDERS, open_session

_SILENT = 4
# NumPy has none of these: their bits travel as integers.
_BITS = {
    "bfloat16": torch.uint16,
    "float8_e4m3fn": torch.uint8,
    "float8_e5m2": torch.uint8,
}


class Session(Runner):
    """An ONNX Runtime session; see `Runner`.

    Attributes:
        session: the ``onnxruntime.InferenceSession``.
    """

    def __init__(self, artifact: Artifact, options: Any = None) -> None:
        import onnxruntime

        manifest, details = artifact.manifest, artifact.manifest.details
        self._inputs = [spec.name for spec in manifest.inputs]
        self._outputs = [spec.name for spec in manifest.outputs]
        dtypes = {spec.dtype for spec in (*manifest.inputs, *manifest.outputs)}
        self._plain = not dtypes & set(_BITS)
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
        """See `Runner.run`."""
        named = dict(zip(self._inputs, inputs, strict=True))
        if self._plain:
            # Cheaper than its own values, whose results are copied.
            arrays = {name: tensor.cpu().numpy() for name, tensor in named.items()}
            with as_runtime_errors():
                found = self.session.run(self._outputs, arrays)
            results = [torch.from_numpy(np.asarray(value)) for value in found]
        else:
            feeds = {name: to_ort(tensor) for name, tensor in named.items()}
            with as_runtime_errors():
                values = self.session.run_with_ort_values(self._outputs, feeds)
            results = [from_ort(value) for value in values]
        # ONNX Runtime takes and gives memory of the host, whatever its provider.
        device = inputs[0].device if inputs else torch.device(HOST)
        return results if device.type == HOST else [result.to(device) for result in results]


@contextmanager
def as_runtime_errors() -> Iterator[None]:
    """Raise what ONNX Runtime raises as a `RuntimeError`, which its own exceptions are not."""
    try:
        yield
    except RuntimeError:
        raise
    except Exception as error:
        raise OpsmithError(str(error)) from error


def require_this_machine(artifact: Artifact) -> None:
    """Refuse libraries that were compiled for another kind of machine.

    Raises:
        ArtifactError: saying what they were compiled for.
    """
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
    """Options of a session that prints nothing: what it has to say is in its exceptions."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = _SILENT
    return options


def to_ort(tensor: Tensor) -> Any:
    """A contiguous tensor as an ``OrtValue`` in memory of the host."""
    import onnxruntime

    tensor, name = tensor.cpu(), dtype_name(tensor.dtype)
    if name in _BITS:
        return onnxruntime.OrtValue.ortvalue_from_numpy_with_onnx_type(
            tensor.view(_BITS[name]).numpy(), ELEMENT_TYPES[name]
        )
    return onnxruntime.OrtValue.ortvalue_from_numpy(tensor.numpy())


def from_ort(value: Any) -> Tensor:
    """An ``OrtValue`` as a tensor of its own memory."""
    name = next((name for name in _BITS if ELEMENT_TYPES[name] == value.element_type()), None)
    if name is None:
        return torch.from_numpy(value.numpy())
    found = torch.empty(value.shape(), dtype=DTYPES[name])
    if found.numel():
        ctypes.memmove(found.data_ptr(), value.data_ptr(), found.numel() * found.element_size())
    return found
