"""The command `opsmith explain`: print what a failure's code means."""

import re
from itertools import groupby
from typing import Annotated

import typer
from rich.console import Console
from rich.text import Text

from opsmith.cli import output
from opsmith.cli.options import Debug

app = typer.Typer()

#: Prose is easier to read in lines of at most this width.
_WIDTH = 80
_BLOCK = re.compile(r"^```\w+\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_CODE = re.compile(r"`([^`]+)`")


@app.command()
def explain(
    code: Annotated[
        str | None,
        typer.Argument(
            metavar="CODE", help="A failure code, as OPS-LAYOUT-STRIDE; by default, list all codes."
        ),
    ] = None,
    debug: Debug = False,
) -> None:
    """Say what a failure's code means, what causes it, and what to do."""
    if code is None:
        _show_all(output.stdout())
    else:
        _show(output.stdout(), code)


def _show(console: Console, code: str) -> None:
    """Print the cause, the example and the remedy of a code."""
    from opsmith.checks.report.failure_codes import explanation

    entry = explanation(code)
    console.print(Text(entry.code, style="bold"), Text(f"({entry.family})", style="dim"))
    _prose(console, entry.title, "  ")
    for heading, text in (
        ("Cause", entry.cause),
        ("Example", entry.example),
        ("Remedy", entry.remedy),
    ):
        console.print()
        console.print(Text(heading, style="bold"))
        # Prose and code blocks alternate; a line of code is never wrapped.
        for position, part in enumerate(_BLOCK.split(text)):
            if position % 2:
                console.print()
                for line in part.rstrip().splitlines():
                    console.print(Text(f"    {line}".rstrip(), style="cyan"), soft_wrap=True)
            elif part.strip():
                _prose(console, part.strip(), "  ")


def _show_all(console: Console) -> None:
    """Print every code with its title, family by family."""
    from opsmith.checks.report.failure_codes import catalogue

    width = max(map(len, catalogue()))
    for family, entries in groupby(catalogue().values(), key=lambda entry: entry.family):
        console.print(Text(family, style="bold"))
        for entry in entries:
            _prose(console, entry.title, " " * (width + 2), f"{entry.code:{width}}  ")
        console.print()
    console.print(Text("opsmith explain CODE explains one of them in full.", style="dim"))


def _prose(console: Console, text: str, indent: str, first: str = "") -> None:
    """Print wrapped text with `indent` before each line; `first` replaces it in the first line."""
    styled = Text()
    for position, part in enumerate(_CODE.split(text)):
        styled.append(part, style="cyan" if position % 2 else "")
    width = min(_WIDTH, console.width) - len(indent)
    for number, line in enumerate(styled.wrap(console, width)):
        line.rstrip()
        console.print(Text(first if first and not number else indent).append_text(line))
