"""The page of a notebook: its texts as they are, its code in fences."""

from __future__ import annotations

import json
from pathlib import Path


def page(path: Path) -> str:
    """Return a notebook as Markdown.

    Args:
        path: The ``.ipynb`` file, in version 4 of the format.
    """
    parts = []
    for cell in json.loads(path.read_text())["cells"]:
        text = "".join(cell["source"])
        parts.append(text if cell["cell_type"] == "markdown" else f"```py\n{text}\n```")
    return "\n\n".join(parts) + "\n"
