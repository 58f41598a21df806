"""Create temporary folders to write artifacts in, and remove the folders of killed exports."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from opsmith.system.scratch import held_folder, sweep

_PARTIAL = ".partial"


@contextmanager
def partial_folder(out: Path) -> Iterator[Path]:
    """Yield a fresh folder beside `out`, and remove it when the block ends, if it still exists.

    Folders left by killed exports are removed first.

    Args:
        out: the folder that is to be created.
    """
    prefix = f".{out.name}.opsmith-"
    sweep(out.parent, prefix, _PARTIAL)
    with held_folder(out.parent, prefix, _PARTIAL) as folder:
        yield folder
