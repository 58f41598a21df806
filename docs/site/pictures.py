"""The pictures of the README and the site, drawn from what commands really print.

    python docs/site/pictures.py

writes them to ``docs/assets``. They are text, and fetch nothing when they are viewed.
"""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

from opsmith.cli.output import picture

ROOT = Path(__file__).parents[2]
ASSETS = ROOT / "docs" / "assets"
WIDTH = 100
#: The kernel of the first tutorial, whose loop begins one element too late.
_TUTORIAL = ROOT / "docs" / "tutorials" / "kernel.md"
CHECK = "opsmith check scale_rows.py --check build,bounds,fake,validation --examples 24 --seed 0"
SHOW = "opsmith show gallery/my_add/my_add.py"
_TEXT = re.compile(r'(<text class="[^"]*" x="[\d.]+" y="([\d.]+)".*?</text>)', re.DOTALL)
#: Seconds from one row of the recording to the next.
_PAUSE = 0.3
_APPEAR = """
    .opsmith-row { animation: opsmith-appear 0.2s both }
    @keyframes opsmith-appear { from { opacity: 0 } }
    @media (prefers-reduced-motion: reduce) { .opsmith-row { animation: none } }
    </style>"""


def checked(folder: Path) -> str:
    """What `opsmith check` prints of the faulty kernel, with its colours.

    Args:
        folder: where the operator's files are written.
    """
    for name, text in faulty().items():
        (folder / name).write_text(text)
    said = _said(CHECK, folder)
    # A report names the file by its whole path, which is a temporary one here.
    return said.replace(f"{folder}/", "")


def faulty() -> dict[str, str]:
    """The files of the first tutorial, the kernel as it is after it was broken."""
    page = _TUTORIAL.read_text(encoding="utf-8")
    files = re.findall(
        r"`(scale_rows\.\w+)`:\n\n```\w+\n(.*?)^```$", page, re.DOTALL | re.MULTILINE
    )
    assert [name for name, _ in files] == ["scale_rows.py", "scale_rows.cpp", "scale_rows.cpp"]
    return dict(files)


def shown() -> str:
    """What `opsmith show` prints of `my_add`."""
    return _said(SHOW, ROOT)


def _said(command: str, folder: Path) -> str:
    done = subprocess.run(
        [sys.executable, "-m", *command.split()],
        capture_output=True,
        text=True,
        check=False,
        cwd=folder,
        env={**os.environ, "FORCE_COLOR": "1", "COLUMNS": str(WIDTH), "TERMINAL_WIDTH": str(WIDTH)},
    )
    # Rich shows how far it is to whoever asks for colours; a picture is of the end.
    lines = (line for line in done.stdout.splitlines() if "━" not in line)
    return re.sub(r"(?:[^\S\n]*\n){3,}", "\n\n", "\n".join(line.rstrip() for line in lines)).strip(
        "\n"
    )


def drawn(command: str, said: str) -> str:
    """A terminal as SVG, in which the command was typed and printed this."""
    console = Console(record=True, width=WIDTH, file=io.StringIO())
    console.print(Text(f"$ {command}"))
    console.print(Text.from_ansi(said.rstrip()))
    return picture(console, command.partition(" --")[0])


def animated(svg: str) -> str:
    """A drawn terminal in which the rows appear one after the other, and then stay.

    Who asks for no motion, or has a viewer without CSS, sees all of them at once.
    """
    rows: dict[str, list[str]] = {}
    for text, row in _TEXT.findall(svg):
        rows.setdefault(row, []).append(text)
    groups = [
        f'<g class="opsmith-row" style="animation-delay:{_PAUSE * k:.1f}s">{"".join(texts)}</g>'
        for k, texts in enumerate(rows.values())
    ]
    first, last = next(iter(rows.values()))[0], list(rows.values())[-1][-1]
    start, end = svg.index(first), svg.index(last) + len(last)
    return svg[:start].replace("</style>", _APPEAR, 1) + "\n".join(groups) + svg[end:]


def words(svg: str) -> str:
    """The text of such a picture, a line for each of the terminal's."""
    import html

    lines: dict[str, list[tuple[float, str]]] = {}
    for place, row, text in re.findall(
        r'<text class="[^"]*" x="([\d.]+)" y="([\d.]+)"[^>]*>(.*?)</text>', svg, re.DOTALL
    ):
        lines.setdefault(row, []).append((float(place), html.unescape(text).replace("\xa0", " ")))
    return "\n".join("".join(part for _, part in sorted(parts)) for parts in lines.values())


def main() -> None:
    """Draw all of them."""
    with tempfile.TemporaryDirectory() as folder:
        recording = animated(drawn(CHECK, checked(Path(folder))))
        (ASSETS / "check.svg").write_text(recording, encoding="utf-8")
    (ASSETS / "show.svg").write_text(drawn(SHOW, shown()), encoding="utf-8")


if __name__ == "__main__":
    main()
