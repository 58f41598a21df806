"""ONNX Runtime's execution providers, as far as opsmith makes operator libraries for them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from opsmith.errors import ArtifactError
from opsmith.kernels import HOST


@dataclass(frozen=True)
class Provider:
    """One of them.

    Attributes:
        device: the device type of the kernels that it runs; also what the option calls it.
        name: ONNX Runtime's name of it.
        title: how people say the device.
        suffix: of a kernel's source, for messages.
        package: what pip installs to have it.
    """

    device: str
    name: str
    title: str
    suffix: str
    package: str

    def missing(self) -> str:
        """Why this ONNX Runtime does not have it; empty where it has."""
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
"""By device type."""


def open_session(model: str | bytes, options: Any, names: list[str]) -> Any:
    """A session whose first provider is the one that was asked for.

    Args:
        model: the file, or its bytes.
        options: an ``onnxruntime.SessionOptions``.
        names: the providers, the one that is asked for first.

    Raises:
        ArtifactError: ONNX Runtime does not have it, or could not start it. By itself it would
            warn, and go on without.
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
