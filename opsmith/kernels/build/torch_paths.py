"""Where the installed PyTorch keeps its headers and libraries; found without importing it."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path

from opsmith.errors import MissingDependencyError
from opsmith.kernels.build.devices import Device


@dataclass(frozen=True)
class TorchPaths:
    """Folders of one PyTorch.

    Attributes:
        version: its version.
        include: its include folders.
        library: the folder of its libraries.
    """

    version: str
    include: tuple[Path, ...]
    library: Path

    def links(self, names: Sequence[str]) -> list[str]:
        """The paths of those of its libraries that are there.

        Args:
            names: as the linker has them, ``torch_cpu``.
        """
        paths = [self.library / f"lib{name}.so" for name in names]
        return [str(path) for path in paths if path.exists()]


_instead: list[Path] = []


@contextmanager
def linked_in_place(library: Path) -> Iterator[None]:
    """Within a ``with`` block, link libraries of this folder in place of PyTorch's."""
    _instead.append(library)
    try:
        yield
    finally:
        _instead.pop()


def torch_paths() -> TorchPaths | None:
    """The installed PyTorch's folders, `None` where there is none."""
    found = _installed()
    return replace(found, library=_instead[-1]) if found is not None and _instead else found


def require_torch_for(device: Device, what: str, kernel: str) -> None:
    """Ask for a PyTorch that was built for a device type; without any, nobody minds.

    Args:
        device: which.
        what: what it is needed for, for the message.
        kernel: the kernel and its language, as the beginning of a sentence.

    Raises:
        MissingDependencyError: the one that is installed was not.
    """
    paths, needed = torch_paths(), device.torch_libraries[:1]
    if paths is not None and needed and not paths.links(needed):
        raise MissingDependencyError(
            f"{what}: {kernel}, and this PyTorch ({paths.version}) has no {device.title}. Install "
            "one that has (https://pytorch.org/get-started/locally)."
        )


@cache
def _installed() -> TorchPaths | None:
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    return paths_of(Path(spec.origin).parent)


def paths_of(root: Path) -> TorchPaths:
    """The folders of the PyTorch that lies in a folder, whether or not it is this Python's.

    Args:
        root: the package ``torch``.
    """
    try:
        found = re.search(r"__version__ = ['\"]([^'\"]+)", (root / "version.py").read_text())
    except OSError:
        found = None
    include = (root / "include", root / "include" / "torch" / "csrc" / "api" / "include")
    return TorchPaths(found[1] if found else "", include, root / "lib")
