"""Folders that an artifact is written in before it has its name, and what killed exports leave."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from opsmith.kernels.build.scratch import held_folder, sweep

_PARTIAL = ".partial"


@contextmanager
def partial_folder(out: Path) -> Iterator[Path]:
    """A fresh folder beside `out`, removed when the block ends, if it is still there then.

    Those of exports that were killed are removed first.

    Args:
        out: the folder that is to be made.
    """
    sweep(out.parent, f".{out.name}.", _PARTIAL)
    with held_folder(out.parent, f".{out.name}.", _PARTIAL) as folder:
        yield folder
