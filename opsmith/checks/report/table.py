"""A report in a terminal, in Python and in a notebook: row by row, or as a whole on one screen."""

from __future__ import annotations

import io
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Any

from rich.console import Console
from rich.padding import Padding
from rich.table import Table as Grid
from rich.text import Text

from opsmith.checks.report.rows import UNTRIED, Results, Row, show_error
from opsmith.system.stopwatch import KINDS
from opsmith.system.text import wrapped

#: Least width of the column of names; widths of the columns of cases, errors and times.
_NAME, _CASES, _ERROR, _TIME = 12, 5, 5, 7
#: With so many untried rows for one reason, they are counted in place of named.
_ALIKE = 6
#: Number of failures of one kernel that are shown in full after the table.
_IN_FULL = 3
#: Fewest columns for remarks beside a row; in a narrower terminal they stand below it.
_REMARK = 30
#: Fewest seconds that the table of timings shows.
_SHOWN = 0.005
_MARKS = {
    "passed": ("✓", "green"),
    "failed": ("✗", "red"),
    "cut short": ("!", "yellow"),
    "not applicable": ("–", "dim"),
    "not run": ("–", "dim"),
}
#: The line that explains the table's columns.
LEGEND = "error: the largest error found, in units of its tolerance"
_STYLES = {"passed": "green", "failed": "red", "incomplete": "yellow"}


class Table:
    """A table that shows the rows of a run one by one.

    Args:
        show: function that prints one renderable of rich.
        names: names of the checks of the run; the column is as wide as the longest.
        verbose: whether to show the notes of passed rows in full.
    """

    def __init__(
        self, show: Callable[[Any], None], names: Iterable[str] = (), verbose: bool = False
    ) -> None:
        self._show = show
        self._verbose = verbose
        self._width = max([_NAME, *map(len, names)])
        self._kernel: tuple[str, str] | None = None
        self._untried: list[Row] = []

    def add(self, row: Row) -> None:
        """Show one more row, and its kernel's name first if it is a new kernel.

        Rows without any tried case are shown by reason, after the others of their kernel.
        """
        if self._kernel is None:
            self._show(
                _Line(Text(""), self._width, "check", "cases", "error", "time", style="bold")
            )
        if self._kernel != (row.operator, row.kernel):
            self.flush()
            if self._kernel is not None:
                self._show(Text(""))
            self._kernel = (row.operator, row.kernel)
            self._show(_title(*self._kernel))
        if row.status in UNTRIED:
            self._untried.append(row)
        else:
            self._show(_line(row, self._width, self._verbose))

    def flush(self) -> None:
        """Show the rows that were held back."""
        for line in _by_reason(self._untried):
            self._show(line)
        self._untried.clear()


def on_a_screen(report: Results) -> Iterator[Any]:
    """Yield the report in short: what passed is named, and a row has no line of its own."""
    for operator, kernel, rows in report.groups():
        yield _title(operator, kernel)
        for status in ("passed", "failed"):
            names = [row.check for row in rows if row.status == status]
            if names:
                yield _marked(status, f"{len(names)} {status}: {', '.join(names)}")
        yield from _by_reason(row for row in rows if row.status not in ("passed", "failed"))
    yield from ending(report)


def _title(operator: str, kernel: str) -> Text:
    title = Text(operator, style="bold", overflow="fold")
    return title.append(f"  kernel: {kernel}", style="not bold")


def _marked(status: str, text: str) -> Any:
    """Return text behind the mark of a status, wrapped beside the mark."""
    mark, style = _MARKS[status]
    grid = Grid.grid(padding=(0, 2, 0, 0))
    grid.add_row(Text(mark, style=style), Text(text, style=style * (style == "dim")))
    return grid


def _by_reason(rows: Iterable[Row]) -> Iterator[Any]:
    """Yield the rows with their messages, of which each is shown once."""
    found: dict[tuple[str, str], list[str]] = {}
    for row in rows:
        found.setdefault((row.status, row.message), []).append(row.check)
    for (status, message), names in found.items():
        what = ", ".join(names) if len(names) < _ALIKE else f"{len(names)} checks"
        yield _marked(status, f"{what}: {message}")


def _line(row: Row, width: int, verbose: bool) -> _Line:
    """Return the line of a tried row; a failure is told in full after the table."""
    mark, style = _MARKS[row.status]
    passed = row.status == "passed"
    first = row.message if row.status == "cut short" else row.message.partition("\n")[0]
    said = "; ".join(row.notes) if passed else ": ".join(filter(None, (row.code, first)))
    return _Line(
        Text(mark, style=style),
        width,
        row.check,
        str(row.cases or ""),
        show_error(row.error),
        f"{row.seconds:.1f} s",
        Text(said, style="dim" if passed else style),
        notes=len(row.notes) if passed and not verbose else 0,
    )


@dataclass(frozen=True)
class _Line:
    """A row of the table, with its remark beside it or, in a narrow terminal, below it.

    Notes that do not fit beside it are counted.
    """

    mark: Any
    width: int
    name: str
    cases: str
    error: str
    time: str
    rest: Any = ""
    style: str = ""
    notes: int = 0

    def __rich_console__(self, console: Any, options: Any) -> Iterator[Any]:
        widths = (1, max(self.width, len(self.name)), _CASES, _ERROR, _TIME)
        room = options.max_width - sum(widths) - len(widths) * 2
        rest = self.rest
        if self.notes and rest.cell_len > room:
            count = f"{self.notes} note{'s' * (self.notes > 1)}"
            rest = Text(count if len(count) <= room else "", style="dim")
        beside = room >= _REMARK or not rest or rest.cell_len <= room
        grid = Grid(box=None, pad_edge=False, show_header=False)
        for position, own in enumerate(widths):
            justify: Any = "right" if position > 1 else "left"
            grid.add_column(width=own, justify=justify, no_wrap=True)
        grid.add_column(overflow="fold")
        texts = (self.name, self.cases, self.error, self.time)
        shown = (Text(text, style=self.style) for text in texts)
        grid.add_row(self.mark, *shown, rest if beside else "")
        yield grid
        if not beside:
            yield Padding(rest, (0, 0, 0, 3), expand=False)


def timings(report: Results) -> Any:
    """Return a table of what the seconds of each row were spent on."""
    grid = Grid(box=None, pad_edge=False, header_style="bold", title="seconds")
    grid.add_column("check", overflow="fold")
    for name in (*KINDS, "rest", "all"):
        grid.add_column(name, justify="right", no_wrap=True)
    ran = [row for row in report.rows if row.timings]
    for name, rows in (*((row.check, [row]) for row in ran), ("all rows", ran)):
        own = [sum(row.timings.get(kind, 0.0) for row in rows) for kind in (*KINDS, "")]
        told = (f"{one:.2f}" if one >= _SHOWN else "" for one in (*own, sum(own)))
        grid.add_row(name, *told, style="bold" if rows is ran else "")
    return grid


def show(console: Console, parts: Iterable[Any], *, wraps: bool = True) -> None:
    """Print parts of a report; wrap their text at words only if `wraps`, and never code."""
    for part in parts:
        if wraps and isinstance(part, Text) and not part.no_wrap:
            part.plain = wrapped(part.plain, console.width)
        console.print(part, soft_wrap=isinstance(part, Text))


def ending(report: Results, *, verbose: bool = False, legend: str = "") -> Iterator[Text]:
    """Yield the first causes in full, the reasons why the run is incomplete, and the summary.

    One fault makes many checks fail, so a kernel's first few failures are the most useful.

    Args:
        verbose: whether to yield all failures in full, each with its case as Python.
        legend: a line above the summary that explains the table.
    """
    for (operator, _), found in groupby(report.failures, lambda row: (row.operator, row.kernel)):
        failures = list(found)
        shown = failures if verbose else failures[:_IN_FULL]
        for row in shown:
            yield Text(f"\n{replace(row, snippet='').explain()}")
            if verbose and row.snippet:
                yield Text(f"  in Python:\n\n{row.snippet}", no_wrap=True)
        others = ", ".join(row.check for row in failures[len(shown) :])
        if others:
            yield Text(f"\n{operator}: {others} failed too, perhaps for the same reason.")
    for gap in report.gaps():
        yield Text(f"\n{gap}", style="yellow")
    for remark in report.remarks():
        yield Text(f"\n{remark}", style="dim")
    yield Text(f"\n{legend}" if legend else "", style="dim")
    yield Text(report.summary(), style=f"bold {_STYLES[report.outcome]}")


def show_ending(console: Console, report: Results, verbose: bool) -> None:
    """Print what follows the table; only a terminal wraps it at words."""
    more = "" if verbose else "; -v shows more"
    show(console, ending(report, verbose=verbose, legend=LEGEND + more), wraps=console.is_terminal)


def text_of(renderables: Iterable[Any]) -> str:
    """Return renderables of rich as plain text, one below the other, as wide as the terminal."""
    text = io.StringIO()
    # A notebook sets FORCE_COLOR, which would put escape codes into the text.
    plain: dict[str, Any] = {"force_jupyter": False, "force_terminal": False, "color_system": None}
    show(Console(file=text, **plain), renderables)
    return "\n".join(line.rstrip() for line in text.getvalue().splitlines())


def html_of(renderables: Iterable[Any], width: int = 80) -> str:
    """Return renderables of rich as HTML that a notebook shows in the colours of its page.

    Args:
        renderables: what to show, one below the other.
    """
    # In a notebook, a console that finds it shows what it prints.
    console = Console(
        record=True, width=width, file=io.StringIO(), color_system="truecolor", force_jupyter=False
    )
    show(console, renderables)
    frame = '<pre style="white-space:pre;overflow-x:auto;line-height:1.3">{code}</pre>'
    return console.export_html(inline_styles=True, code_format=frame)
