"""Print results to stdout, and everything else to stderr."""

import importlib
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import typer
from rich.console import Console
from rich.text import Text

from opsmith.errors import INCOMPLETE
from opsmith.system.text import wrapped
from opsmith.untyped import Untyped

#: The width of tables is limited to this, also if stdout is a file, which has no width of its own.
MAX_WIDTH = 100
#: The exit code for each outcome of a report of checks.
EXIT_CODES = {"passed": 0, "failed": 1, "incomplete": INCOMPLETE}


def stdout(widest: int = MAX_WIDTH) -> Console:
    """Return a console for results, at most `widest` columns wide."""
    console = Console(file=sys.stdout, highlight=False)
    width = min(console.width, widest) if console.is_terminal else widest
    return Console(file=sys.stdout, highlight=False, width=width)


def stderr() -> Console:
    """Return a console for progress and errors."""
    return Console(file=sys.stderr, highlight=False)


def say(message: str, **style: Untyped) -> None:
    """Print a message to stderr literally: without markup, and wrapped on a terminal only."""
    console = stderr()
    text = wrapped(message, console.width) if console.is_terminal else message
    console.print(text, markup=False, soft_wrap=True, **style)


def say_error(message: str) -> None:
    """Print `error: <message>` to stderr."""
    console = stderr()
    text = f"error: {message}"
    if console.is_terminal:
        text = wrapped(text, console.width)
    console.print(Text.assemble((text[:6], "bold red"), text[6:]), soft_wrap=True)


def write_reports(report: Untyped, page: Path | None, junit: Path | None) -> None:
    """Write a report of checks as a page and as JUnit's XML, where a file is named for it."""
    for path, write in ((page, report.to_html), (junit, report.to_junit)):
        if path is not None:
            write(path)
            say(f"wrote {path}")


@contextmanager
def progress(shared: Console | None = None) -> Iterator[Callable[[int, int, str], None]]:
    """Show the progress of a long task, on a terminal only.

    Args:
        shared: the console that results are printed to meanwhile. If it is a terminal, it shows the
            progress too, so that neither overwrites the other.

    Yields:
        A function that receives the number of finished steps, the number of all steps, and the
        current step.
    """
    console = shared if shared is not None and shared.is_terminal else stderr()
    if not console.is_terminal:
        yield lambda done, total, what: None
        return
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn

    columns = (
        BarColumn(bar_width=20),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("{task.description}", markup=False),
    )
    with Progress(*columns, console=console, transient=True) as bar:
        task = bar.add_task("", total=None)

        def tell(done: int, total: int, what: str) -> None:
            bar.update(task, completed=done, total=total, description=what)

        yield tell


def schema_option(module: str) -> Untyped:
    """Return the option that prints a module's JSON Schema, its `SCHEMA_FILE`."""

    def show(wanted: bool) -> None:
        if wanted:
            file = importlib.import_module(module).SCHEMA_FILE
            print(file.read_text(encoding="utf-8"), end="")
            raise typer.Exit

    told = "Print the JSON Schema of what --json prints."
    return typer.Option("--json-schema", callback=show, is_eager=True, help=told)


def picture(recorded: Console, title: str) -> str:
    """Return the text that a console recorded as SVG, which loads nothing when it is viewed.

    Args:
        recorded: a console with ``record=True``.
    """
    text = recorded.export_svg(title=title, unique_id="opsmith")
    # Rich refers to a font on the web; use the viewer's own fixed-width font instead.
    return re.sub(r"@font-face \{.*?\}\s*", "", text, flags=re.DOTALL)
