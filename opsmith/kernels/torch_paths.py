"""Where the installed PyTorch keeps its headers and libraries; found without importing it."""

from __future__ import annotations

import importlib.util
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path


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

    @property
    def has_cuda(self) -> bool:
        """Whether it was built with CUDA."""
        return (self.library / "libtorch_cuda.so").exists()


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


@cache
def _installed() -> TorchPaths | None:
    spec = importlib.util.find_spec("torch")
    if spec is None or spec.origin is None:
        return None
    root = Path(spec.origin).parent
    try:
        found = re.search(r"__version__ = ['\"]([^'\"]+)", (root / "version.py").read_text())
    except OSError:
        found = None
    include = (root / "include", root / "include" / "torch" / "csrc" / "api" / "include")
    return TorchPaths(found[1] if found else "", include, root / "lib")
