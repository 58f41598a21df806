"""Show in Python and in a notebook what a command prints in a terminal."""

from __future__ import annotations

import io
from collections.abc import Iterable
from typing import Any


def text_of(renderables: Iterable[Any]) -> str:
    """Return renderables of rich as plain text, one below the other, as wide as the terminal."""
    from rich.console import Console

    from opsmith.checks.report.table import show

    text = io.StringIO()
    # A notebook sets FORCE_COLOR, which would put escape codes into the text.
    plain: dict[str, Any] = {"force_jupyter": False, "force_terminal": False, "color_system": None}
    show(Console(file=text, **plain), renderables)
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines())


def html_of(renderables: Iterable[Any], width: int = 80) -> str:
    """Return renderables of rich as HTML that a notebook shows in the colours of its page.

    Args:
        renderables: what to show, one below the other.
        width: the width in characters.
    """
    from rich.console import Console

    from opsmith.checks.report.table import show

    # In a notebook, a console that finds it shows what it prints.
    console = Console(
        record=True,
        width=width,
        file=io.StringIO(),
        color_system="truecolor",
        force_jupyter=False,
    )
    show(console, renderables)
    frame = '<pre style="white-space:pre;overflow-x:auto;line-height:1.3">{code}</pre>'
    return console.export_html(inline_styles=True, code_format=frame)
