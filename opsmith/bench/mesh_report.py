"""Show what ranks send: a table in 80 columns, and a picture."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any
from xml.etree import ElementTree

from opsmith.bench.figures import show_bytes
from opsmith.bench.mesh import Placed, Step
from opsmith.bench.plot import picture, text

_PLACED, _SENT = 34, 14
#: For each compared way: the attribute of a row, the heading of its column, and its bar's class.
_WAYS = (
    ("ruled", "by its rules", "bar"),
    ("gathered", "gathering", "second"),
    ("reference", "reference", "reference"),
)
_WIDTH, _NAMES, _BARS = 720, 250, 350
_BAR, _TITLE, _MARGIN = 16, 40, 12


def lines(rows: Sequence[Placed], notes: Sequence[str]) -> Iterator[Any]:
    """Yield the lines for one operator, size and mesh: a title, a table and what has no rule.

    Args:
        rows: the bytes that ranks send, for each placement.
        notes: sentences on the dimensions that no rule splits among ranks.
    """
    from rich.table import Table
    from rich.text import Text

    if not rows:
        return
    first = rows[0]
    yield Text("")
    title = Text(first.operator, style="bold", overflow="fold")
    ranks = f"{'x'.join(map(str, first.mesh))} ranks"
    parts = (first.sizes, first.dtype, ranks)
    yield title.append("  " + "  ".join(filter(None, parts)), style="not bold")
    table = Table(box=None, pad_edge=False, padding=(0, 1, 0, 0), header_style="dim")
    table.add_column("placed", overflow="fold")
    for _, heading, _ in _WAYS:
        table.add_column(heading, min_width=_SENT, justify="right", no_wrap=True)
    for row in rows:
        name = row.placement if row.claim else f"{row.placement} (no rule)"
        table.add_row(name.ljust(_PLACED), *(_cell(getattr(row, way)) for way, _, _ in _WAYS))
    yield table
    problems = {
        (heading, step.problem)
        for row in rows
        for way, heading, _ in _WAYS
        if (step := getattr(row, way)).problem
    }
    for heading, problem in sorted(problems):
        yield Text(f"  {heading}: {problem}", style="dim", overflow="fold")
    for note in notes:
        yield Text(f"  {note}", style="dim", overflow="fold")


def ending() -> Iterator[Any]:
    """Yield the lines below all tables, which say what the figures are."""
    from rich.text import Text

    yield Text("")
    yield Text(
        "Bytes that each rank sends in a call and its gradients, and the number of collectives.",
        style="dim",
        overflow="fold",
    )
    yield Text(
        "gathering: every rank gets whole arguments, and computes the whole. reference: the "
        "operators of PyTorch that it is made of, by their own rules.",
        style="dim",
        overflow="fold",
    )


def _cell(step: Step) -> str:
    if step.problem:
        return "–"
    return f"{show_bytes(step.sent)} · {step.collectives}" if step.collectives else "nothing"


def to_svg(rows: Sequence[Placed]) -> str:
    """Return bars of bytes on a logarithmic scale, as SVG text: three for each placement."""
    root = picture("Bytes that each rank sends in a step")
    bottom = float(_MARGIN)
    groups: dict[Any, list[Placed]] = {}
    for row in rows:
        groups.setdefault((row.operator, row.sizes, row.dtype, row.mesh), []).append(row)
    for (operator, sizes, dtype, mesh), group in groups.items():
        ranks = f"{'x'.join(map(str, mesh))} ranks"
        words = "  ".join(filter(None, (operator, sizes, dtype, ranks)))
        bottom = _add_group(root, words, group, bottom)
    root.set("viewBox", f"0 0 {_WIDTH} {bottom + _MARGIN:.0f}")
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode") + "\n"


def _add_group(root: ElementTree.Element, title: str, rows: Sequence[Placed], top: float) -> float:
    text(root, _MARGIN, top + 18, title, "title")
    steps = [getattr(row, way) for row in rows for way, _, _ in _WAYS]
    largest = max(1, *(math.log10(step.sent + 1) for step in steps))
    y = top + _TITLE
    for row in rows:
        text(root, _NAMES - 8, y + _BAR, row.placement, anchor="end")
        for way, heading, kind in _WAYS:
            step: Step = getattr(row, way)
            length = _BARS * math.log10(step.sent + 1) / largest
            place = {"x": str(_NAMES), "y": f"{y - 10:.0f}", "height": str(_BAR - 4)}
            bar = ElementTree.SubElement(root, "rect", place)
            bar.set("width", f"{max(length, 1):.1f}")
            bar.set("class", kind)
            told = f"{heading}: {_cell(step) if not step.problem else 'not known'}"
            text(root, _NAMES + length + 6, y, told, "note")
            y += _BAR
        y += 6
    return y + 6
