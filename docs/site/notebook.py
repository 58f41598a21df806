"""The page of a notebook: its texts as they are, its code in fences, and what its cells show."""

from __future__ import annotations

from pathlib import Path
from typing import Any


def page(path: Path) -> str:
    """Return a notebook as Markdown.

    Args:
        path: The ``.ipynb`` file, in version 4 of the format.
    """
    import nbformat

    parts = []
    for cell in executed(nbformat.read(path, as_version=4)).cells:
        if cell.cell_type == "markdown":
            parts.append(cell.source)
            continue
        parts.append(f"```py\n{cell.source}\n```")
        parts += [_shown(output) for output in cell.outputs]
    return "\n\n".join(parts) + "\n"


def executed(notebook: Any) -> Any:
    """Run a notebook's cells, which compile two kernels, and return it with their outputs."""
    from nbclient import NotebookClient

    return NotebookClient(notebook, timeout=300, kernel_name="python3").execute()


def _shown(output: Any) -> str:
    if output.output_type == "stream":
        return f"```text\n{output.text.rstrip()}\n```"
    html = output.get("data", {}).get("text/html", "")
    # Markdown ends a block of HTML at an empty line.
    return "\n".join(line or "&nbsp;" for line in html.splitlines())
