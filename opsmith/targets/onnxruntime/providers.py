"""ONNX Runtime's execution providers for which opsmith builds operator libraries."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from opsmith.errors import ArtifactError
from opsmith.kernels import HOST


@dataclass(frozen=True)
class Provider:
    """An execution provider.

    Attributes:
        device: the device type of the kernels that it runs; also its name in the option.
        name: its name in ONNX Runtime.
        title: name of the device in messages.
        suffix: suffix of a kernel's source, for messages.
        package: the pip package that contains it.
    """

    device: str
    name: str
    title: str
    suffix: str
    package: str

    def missing(self) -> str:
        """Return why this ONNX Runtime lacks the provider; empty if it has it."""
        try:
            import onnxruntime
        except ImportError:
            return f"there is no onnxruntime: pip install {self.package}"
        here = onnxruntime.get_available_providers()
        if self.name in here:
            return ""
        return (
            f"this ONNX Runtime ({onnxruntime.__version__}) has no {self.name}, only "
            f"{', '.join(here)}: pip install {self.package}, in place of the other"
        )


PROVIDERS = {
    provider.device: provider
    for provider in (
        Provider(HOST, "CPUExecutionProvider", "the CPU", ".cpp", "onnxruntime"),
        Provider("cuda", "CUDAExecutionProvider", "CUDA", ".cu", "onnxruntime-gpu"),
    )
}
"""The providers by device type."""


def open_session(model: str | bytes, options: Any, names: list[str]) -> Any:
    """Return a session whose first provider is the requested one.

    Args:
        model: path of the model file, or its bytes.
        options: an ``onnxruntime.SessionOptions``.
        names: names of the providers, the requested one first.
    """
    import onnxruntime

    first = next(provider for provider in PROVIDERS.values() if provider.name == names[0])
    missing = first.missing()
    if missing:
        raise ArtifactError(missing)
    session = onnxruntime.InferenceSession(model, options, providers=names)
    if session.get_providers()[0] != first.name:
        raise ArtifactError(
            f"it has {first.name} and could not start it, as it wrote to stderr; it would run on "
            f"{', '.join(session.get_providers())}. An export without it takes verify=False"
        )
    return session
