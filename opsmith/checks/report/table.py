"""The table of a report, printed row by row while the checks run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import groupby
from typing import TYPE_CHECKING, Any

from opsmith.checks.report.rows import REFUSED, UNTRIED, Results, Row, show_error

if TYPE_CHECKING:
    from rich.console import Console

#: Least width of the column of names; widths of the columns of cases, errors and times.
_NAME, _CASES, _ERROR, _TIME = 12, 5, 5, 7
#: Least number of consecutive untried rows with the same reason to merge into one line.
_ALIKE = 4
#: Number of failures of one kernel that are shown in full after the table.
_IN_FULL = 3
#: Fewest columns for remarks beside a row; in a narrower terminal they stand below it.
_REMARK = 30
#: The beginnings of the notes that are shortened, and left out, unless all is to be shown.
_COHORTS, _HOW_SURE = "cohorts: ", "an unequal formula"
_MARKS = {
    "passed": ("✓", "green"),
    "failed": ("✗", "red"),
    "cut short": ("!", "yellow"),
    "not applicable": ("–", "dim"),
    "not run": ("–", "dim"),
}
_STYLES = {"passed": "green", "failed": "red", "incomplete": "yellow"}


class Table:
    """A table that shows the rows of a run one by one.

    Args:
        show: function that prints one renderable of rich.
        names: names of the checks of the run; the column is as wide as the longest.
        verbose: whether to show notes in full.
    """

    def __init__(
        self, show: Callable[[Any], None], names: Iterable[str] = (), verbose: bool = False
    ) -> None:
        self._show = show
        self._verbose = verbose
        self._width = max([_NAME, *map(len, names)])
        self._kernel: tuple[str, str] | None = None
        self._held: list[Row] = []
        self._refusing: set[str] = set()

    def add(self, row: Row) -> None:
        """Show one more row, and its kernel's name first if it is a new kernel.

        Hold back rows without any tried case: many with the same reason are shown as one.
        """
        if self._held and _reason(row) != _reason(self._held[0]):
            self.flush()
        if row.status in UNTRIED:
            self._held.append(row)
        else:
            self._put(row)

    def flush(self) -> None:
        """Show the rows that were held back."""
        rows, self._held = self._held, []
        if len(rows) < _ALIKE:
            for row in rows:
                self._put(row)
        elif rows:
            self._put(replace(rows[0], check=f"{len(rows)} checks"))

    def _put(self, row: Row) -> None:
        said = remark(self._shortened(row), self._verbose)
        for line in _lines(row, said, self._kernel, self._width):
            self._show(line)
        self._kernel = (row.operator, row.kernel)

    def _shortened(self, row: Row) -> Row:
        """Shorten the note on rejected samples if an earlier row of the operator has it."""
        if not any(note.startswith(REFUSED) for note in row.notes):
            return row
        if row.operator not in self._refusing:
            self._refusing.add(row.operator)
            return row
        notes = [n.partition(": ")[0] if n.startswith(REFUSED) else n for n in row.notes]
        return replace(row, notes=tuple(notes))


def end(console: Console, report: Results, *, chosen: bool = True) -> None:
    """Show the text after the rows; only the terminal wraps it, so that commands can be copied.

    Args:
        console: where it is shown.
        report: the report.
        chosen: whether the command has an option ``--check``, which chooses rows.
    """
    for part in ending(report, chosen=chosen):
        console.print(part, soft_wrap=True)


def _reason(row: Row) -> tuple[str, str, str] | None:
    """Return operator, kernel and reason of an untried row; `None` for other rows."""
    if row.status not in UNTRIED:
        return None
    return row.operator, row.kernel, row.message


def _lines(row: Row, said: str, before: tuple[str, str] | None, width: int) -> Iterator[Any]:
    """Yield the renderables for a row.

    Args:
        row: the row.
        said: the remark beside it.
        before: operator and kernel of the row before; `None` for the first row.
        width: width of the column of names.
    """
    from rich.text import Text

    if before is None:
        yield _Line(Text(""), width, "check", "cases", "error", "time", Text(""), style="bold")
    if before != (row.operator, row.kernel):
        if before is not None:
            yield Text("")
        title = Text(row.operator, style="bold", overflow="fold")
        yield title.append(f"  kernel: {row.kernel}", style="not bold")
    mark, style = _MARKS[row.status]
    yield _Line(
        Text(mark, style=style),
        width,
        row.check,
        str(row.cases) if row.cases else "",
        show_error(row.error),
        f"{row.seconds:.1f} s",
        Text(said, style=style if row.status in ("failed", "cut short") else "dim"),
    )


@dataclass(frozen=True)
class _Line:
    """A row of the table, with its remark beside it or, in a narrow terminal, below it."""

    mark: Any
    width: int
    name: str
    cases: str
    error: str
    time: str
    rest: Any
    style: str = ""

    def __rich_console__(self, console: Any, options: Any) -> Iterator[Any]:
        from rich.padding import Padding
        from rich.table import Table as Grid
        from rich.text import Text

        widths = (1, max(self.width, len(self.name)), _CASES, _ERROR, _TIME)
        beside = options.max_width - sum(widths) - len(widths) * 2 >= _REMARK
        grid = Grid(box=None, pad_edge=False, show_header=False)
        for position, own in enumerate(widths):
            justify: Any = "right" if position > 1 else "left"
            grid.add_column(width=own, justify=justify, no_wrap=True)
        grid.add_column(overflow="fold")
        texts = (self.name, self.cases, self.error, self.time)
        shown = (Text(text, style=self.style) for text in texts)
        grid.add_row(self.mark, *shown, self.rest if beside else "")
        yield grid
        if not beside and self.rest:
            yield Padding(self.rest, (0, 0, 0, 3))


def ending(report: Results, *, chosen: bool = True) -> Iterator[Any]:
    """Yield the first causes in full, the reasons why the run is incomplete, and the summary.

    One fault makes many checks fail, so a kernel's first few failures are the most useful.
    """
    from rich.text import Text

    for _, found in groupby(report.failures, lambda row: (row.operator, row.kernel)):
        failures = list(found)
        for row in failures[:_IN_FULL]:
            yield Text("")
            yield Text(row.explain(), overflow="fold")
        others = [row.check for row in failures[_IN_FULL:]]
        if others:
            text = (
                f"{failures[0].operator}: {', '.join(others)} failed too, perhaps for the same "
                "reason."
            )
            if chosen:
                text += f" By themselves: --check {','.join(others)}"
            yield Text("")
            yield Text(text)
    for gap in report.gaps():
        yield Text("")
        yield Text(gap, style="yellow", overflow="fold")
    for said in report.remarks():
        yield Text("")
        yield Text(said, style="dim")
    yield Text("")
    yield Text("error: the largest error found, in units of its tolerance", style="dim")
    yield Text(report.summary(), style=f"bold {_STYLES[report.outcome]}")


def remark(row: Row, verbose: bool = False) -> str:
    """Return the remark of a row in the table; failures are shown in full after the table.

    Args:
        row: the row.
        verbose: whether to show its notes in full.
    """
    if row.status == "passed":
        return "; ".join(row.notes if verbose else filter(None, map(_shortly, row.notes)))
    if row.status == "cut short":
        return row.message
    first = row.message.splitlines()[0] if row.message else ""
    return f"{row.code}: {first}" if row.code else first


def _shortly(note: str) -> str:
    """Return a note in short: the number of cohorts, and nothing on how sure a proof is."""
    if note.startswith(_COHORTS):
        return f"{note.count(',') + 1} cohorts"
    return "" if note.startswith(_HOW_SURE) else note
