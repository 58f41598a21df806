"""Print a benchmark in 80 columns: a table for each size."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from rich.table import Table
from rich.text import Text

from opsmith.bench.compare import Change
from opsmith.bench.figures import Figure, show_bytes, show_number, show_operations, show_seconds
from opsmith.bench.machine import Machine
from opsmith.kernels import HOST

_NAME, _TIME, _SPREAD, _RATIO = 23, 8, 5, 8


def lines(figures: Sequence[Figure], machine: Machine) -> Iterator[Any]:
    """Yield the lines for one size: a title, a table, and the reasons for missing figures."""
    yield Text("")
    yield _title(figures[0])
    timed = [figure for figure in figures if figure.seconds]
    if timed:
        yield _table(timed, machine)
    variants = [one for one in timed if one.name.startswith(f"{one.device}[")]
    if variants:
        own = [one for one in timed if one.name == f"{one.device} kernel"]
        fastest = max([*own, *variants], key=lambda one: one.speedup or 0).name
        yield Text(f"  fastest of the variants with right results: {fastest}", overflow="fold")
    for figure in figures:
        if figure.status == "not applicable":
            yield Text(f"  {figure.name}: {figure.message}", style="dim", overflow="fold")
        elif not figure.seconds:
            text = f"  {figure.name}: {figure.status}: {figure.message}"
            yield Text(text, style="red", overflow="fold")
    for note in dict.fromkeys(note for figure in figures for note in figure.notes):
        yield Text(f"  note: {note}", style="dim", overflow="fold")


def _title(figure: Figure) -> Any:
    parts = [figure.sizes, figure.dtype, figure.device if figure.device != HOST else ""]
    if figure.bytes is not None:
        parts.append(show_bytes(figure.bytes))
    if figure.operations is not None:
        parts.append(show_operations(figure.operations))
    title = Text(figure.operator, style="bold", overflow="fold")
    return title.append("  " + "  ".join(part for part in parts if part), style="not bold")


def _table(figures: Sequence[Figure], machine: Machine) -> Any:
    moved = figures[0].bytes is not None
    computed = figures[0].operations is not None
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    table.add_column("", overflow="fold")
    for heading, width in (("time", _TIME), ("±", _SPREAD), ("speed-up", _RATIO)):
        table.add_column(heading, min_width=width, justify="right", no_wrap=True)
    if moved:
        table.add_column("moved", justify="right")
    if computed:
        table.add_column("computed", justify="right")
    for figure in figures:
        cells = [
            figure.name.ljust(_NAME),
            show_seconds(figure.median),
            f"{100 * figure.spread:.0f} %",
            "" if figure.speedup is None else f"{_short(figure.speedup)} ×",
        ]
        if figure.bytes is not None:
            rate = figure.bytes / figure.median
            cells.append(f"{show_bytes(rate)}/s {_percent(rate / machine.bandwidth)}")
        if figure.operations is not None:
            rate = figure.operations / figure.median
            cells.append(f"{show_operations(rate)}/s {_percent(rate / machine.rate)}")
        table.add_row(*cells)
    return table


def ending(machine: Machine, figures: Sequence[Figure]) -> Iterator[Any]:
    """Yield the lines that describe the machine, and the columns that the tables have."""
    columns = ["moved"] if any(figure.bytes is not None for figure in figures) else []
    columns += ["computed"] if any(figure.operations is not None for figure in figures) else []
    stated = (
        f"; {' and '.join(columns)}: what register_cost states, as a part of that copy and of that "
        "product"
        if columns
        else ""
    )

    yield Text("")
    yield Text(
        f"{machine.processor}, {machine.cores} cores; in this run a copy moved "
        f"{show_bytes(machine.bandwidth)}/s, a matrix product ({machine.dtype}) did "
        f"{show_operations(machine.rate)}/s. time: the median of all rounds; ±: half the range of "
        f"the middle half of them; speed-up: beside the reference in the same round{stated}.",
        style="dim",
    )
    if machine.load > machine.cores:
        yield Text(
            f"the machine was busy: {machine.load:.0f} threads wanted to run on {machine.cores} "
            "cores. Times are longer than on an idle one, and ratios less certain.",
            style="yellow",
        )


def compared(changes: Sequence[Change]) -> Iterator[Any]:
    """Yield the lines that show the changes since an earlier run."""
    yield Text("")
    yield Text("beside the saved run", style="bold")
    if not changes:
        yield Text("  the saved run has none of these figures", style="dim")
    for _, group in itertools.groupby(changes, lambda change: change.figure.key[:-1]):
        ours = list(group)
        yield _title(ours[0].figure)
        yield _changes_table(ours)
    if any(change.absolute for change in changes):
        yield Text(
            "* times themselves are compared, not those divided by the reference's", style="dim"
        )


def _changes_table(changes: Sequence[Change]) -> Any:
    styles = {"slower": "red", "faster": "green", "unchanged": "dim"}
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    table.add_column("", overflow="fold")
    for heading, width in (("time", _TIME), ("p", _SPREAD + 2)):
        table.add_column(heading, min_width=width, justify="right", no_wrap=True)
    table.add_column("")
    for change in changes:
        mark = " *" if change.absolute else ""
        cells = (f"{_short(change.ratio)} ×", f"{change.p:.2g}", f"{change.verdict}{mark}")
        table.add_row(change.figure.name.ljust(_NAME), *cells, style=styles[change.verdict])
    return table


def _short(value: float) -> str:
    """Format a number with two or three digits."""
    return show_number(value) if value >= 0.1 else f"{value:.2g}"


def _percent(part: float) -> str:
    return f"{100 * part:.0f} %" if part >= 0.01 else "<1 %"
