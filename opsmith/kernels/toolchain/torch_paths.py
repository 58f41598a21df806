"""Find the headers and libraries of the installed PyTorch without importing it."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from opsmith.errors import MissingDependencyError
from opsmith.kernels.toolchain.devices import Device


@dataclass(frozen=True)
class TorchPaths:
    """The folders of an installed PyTorch."""

    version: str
    include: tuple[Path, ...]
    library: Path

    def links(self, names: Sequence[str]) -> list[str]:
        """Return the paths of those named libraries that exist.

        Args:
            names: the names for the linker, as ``torch_cpu``.
        """
        paths = [self.library / f"lib{name}.so" for name in names]
        return [str(path) for path in paths if path.exists()]


_instead: list[Path] = []


@contextmanager
def linked_in_place(library: Path) -> Iterator[None]:
    """Link the libraries in this folder instead of PyTorch's, during a ``with`` block."""
    _instead.append(library)
    try:
        yield
    finally:
        _instead.pop()


def torch_paths() -> TorchPaths | None:
    """Return the installed PyTorch's folders; `None` if it is not installed."""
    found = _installed()
    return replace(found, library=_instead[-1]) if found is not None and _instead else found


def require_torch_for(device: Device, what: str, kernel: str) -> None:
    """Refuse a PyTorch that was built without support for a device type.

    If PyTorch is not installed, nothing is refused.

    Args:
        what: what PyTorch is needed for, for the message.
        kernel: the kernel and its language, as the beginning of a sentence.
    """
    paths, needed = torch_paths(), device.torch_libraries[:1]
    if paths is not None and needed and not paths.links(needed):
        raise MissingDependencyError(
            f"{what}: {kernel}, and this PyTorch ({paths.version}) has no {device.title}. Install "
            "a PyTorch that has it (https://pytorch.org/get-started/locally)."
        )


@cache
def _installed() -> TorchPaths | None:
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    return paths_of(Path(spec.origin).parent)


def paths_of(root: Path) -> TorchPaths:
    """Return the folders of the PyTorch in a folder, which need not be this Python's.

    Args:
        root: the folder of the package ``torch``.
    """
    try:
        found = re.search(r"__version__ = ['\"]([^'\"]+)", (root / "version.py").read_text())
    except OSError:
        found = None
    include = (root / "include", root / "include" / "torch" / "csrc" / "api" / "include")
    return TorchPaths(found[1] if found else "", include, root / "lib")
