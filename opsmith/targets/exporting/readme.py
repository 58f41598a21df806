"""Write an artifact's ``README.md``: a description, how to run it, and its inputs and outputs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from opsmith.system.version import version
from opsmith.targets.exporting.artifact import OperatorUse
from opsmith.targets.exporting.model import Model

README = "README.md"


def write_readme(
    folder: Path, model: Model, title: str, how: Sequence[str], uses: Sequence[OperatorUse] = ()
) -> None:
    """Write the file.

    Args:
        how: lines on the requirements and on how to run the artifact.
        uses: how each custom operator was exported.
    """
    lines = [f"# {title}", "", f"Exported by opsmith {version()}.", "", *how]
    lines += ["", "Inputs:", "", *(f"- `{spec}`" for spec in model.inputs)]
    lines += ["", "Outputs:", "", *(f"- `{spec}`" for spec in model.outputs)]
    if uses:
        lines += ["", "Custom operators:", ""]
        lines += [f"- `{u.name}`: {u.form}{f' ({u.note})' if u.note else ''}" for u in uses]
    (folder / README).write_text("\n".join(lines) + "\n", encoding="utf-8")
