"""How the command line speaks: results to stdout, everything else to stderr."""

import importlib
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import typer
from rich.console import Console

#: Tables are drawn to fit here, also where stdout is a file and has no width of its own.
MAX_WIDTH = 100


def stdout(widest: int = MAX_WIDTH) -> Console:
    """Return a console for results, at most `widest` columns wide."""
    console = Console(file=sys.stdout, highlight=False)
    width = min(console.width, widest) if console.is_terminal else widest
    return Console(file=sys.stdout, highlight=False, width=width)


def stderr() -> Console:
    """Return a console for progress and errors."""
    return Console(file=sys.stderr, highlight=False)


def say(message: str, **style: Any) -> None:
    """Print one line of progress to stderr, as it is: brackets are not markup, nothing wraps."""
    stderr().print(message, markup=False, soft_wrap=True, **style)


def say_error(message: str) -> None:
    """Print `error: <message>` to stderr."""
    console = stderr()
    console.print("error:", style="bold red", end=" ")
    console.print(message, markup=False, soft_wrap=True)


@contextmanager
def progress(shared: Console | None = None) -> Iterator[Callable[[int, int, str], None]]:
    """Show how far a long task is, on a terminal only.

    Args:
        shared: the console that results go to meanwhile; where it is a terminal, it shows this
            too, so that neither writes over the other.

    Yields:
        A function that takes how many steps are done, how many there are, and what is being done.
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


def schema_printer(module: str) -> Callable[[bool], None]:
    """What an option does that prints the JSON Schema of a module, its `SCHEMA_FILE`, and ends."""

    def show(wanted: bool) -> None:
        if wanted:
            file = importlib.import_module(module).SCHEMA_FILE
            print(file.read_text(encoding="utf-8"), end="")
            raise typer.Exit

    return show


def picture(recorded: Console, title: str) -> str:
    """What a console recorded, as SVG that fetches nothing when it is viewed.

    Args:
        recorded: a console with ``record=True``.
        title: what stands above it.
    """
    text = recorded.export_svg(title=title, unique_id="opsmith")
    # Rich names a font on the net; the viewer's own fixed-width font will do.
    return re.sub(r"@font-face \{.*?\}\s*", "", text, flags=re.DOTALL)
