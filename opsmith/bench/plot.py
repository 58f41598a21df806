"""Draw a benchmark as bars of times, in a self-contained SVG."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from xml.etree import ElementTree

from opsmith.bench.figures import Benchmark, Figure, show_seconds

_WIDTH, _NAMES, _BARS = 720, 190, 400
_ROW, _TITLE, _MARGIN = 22, 40, 12
#: Colours that are readable on paper and on a dark screen.
_STYLE = """
text { font: 13px system-ui, sans-serif; fill: #1f2328; }
.title { font-weight: 600; }
.note { fill: #656d76; }
.bar { fill: #3b82c4; }
.reference { fill: #8c959f; }
.spread { stroke: #1f2328; stroke-width: 1.5; }
@media (prefers-color-scheme: dark) {
  text { fill: #e6edf3; }
  .note { fill: #9198a1; }
  .bar { fill: #58a6ff; }
  .reference { fill: #6e7681; }
  .spread { stroke: #e6edf3; }
}
"""


def to_svg(benchmark: Benchmark) -> str:
    """Return the benchmark as SVG text: for each operator and size a bar for each contestant.

    The length of a bar is the median time, relative to the longest bar of its group; the line over
    its end is the interquartile range of the rounds.
    """
    root = picture("Times of kernels and runtimes")
    bottom = float(_MARGIN)
    for group in benchmark.groups():
        timed = [figure for figure in group if figure.seconds]
        if timed:
            bottom = _add_group(root, timed, bottom)
    root.set("viewBox", f"0 0 {_WIDTH} {bottom + _MARGIN:.0f}")
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode") + "\n"


def _add_group(root: ElementTree.Element, figures: Sequence[Figure], top: float) -> float:
    """Draw one group below `top`, and return its bottom edge."""
    first = figures[0]
    words = "  ".join(word for word in (first.operator, first.sizes, first.dtype) if word)
    text(root, _MARGIN, top + 18, words, "title")
    longest = max(max(_middle(figure)[1], figure.median) for figure in figures)
    for row, figure in enumerate(figures):
        y = top + _TITLE + row * _ROW
        end = _NAMES + _BARS * figure.median / longest
        text(root, _NAMES - 8, y, figure.name, anchor="end")
        bar = ElementTree.SubElement(root, "rect", x=str(_NAMES), y=f"{y - 12:.0f}", height="14")
        bar.set("width", f"{max(end - _NAMES, 1):.1f}")
        bar.set("class", "reference" if figure.name == "reference" else "bar")
        low, high = (_NAMES + _BARS * time / longest for time in _middle(figure))
        line = ElementTree.SubElement(root, "line", x1=f"{low:.1f}", x2=f"{high:.1f}")
        line.attrib.update({"y1": f"{y - 5:.0f}", "y2": f"{y - 5:.0f}", "class": "spread"})
        told = show_seconds(figure.median)
        if figure.speedup is not None and figure.name != "reference":
            told += f", {figure.speedup:.2g} ×"
        text(root, max(end, high) + 6, y, told, "note")
    return top + _TITLE + len(figures) * _ROW


def _middle(figure: Figure) -> tuple[float, float]:
    """Return the times between which the middle half of the rounds lies."""
    if len(figure.seconds) < 2:
        return figure.median, figure.median
    low, _, high = statistics.quantiles(figure.seconds, n=4, method="inclusive")
    return low, high


def picture(title: str) -> ElementTree.Element:
    """Return an empty picture in colours for paper and for a dark screen."""
    root = ElementTree.Element("svg", xmlns="http://www.w3.org/2000/svg", role="img")
    ElementTree.SubElement(root, "title").text = title
    ElementTree.SubElement(root, "style").text = _STYLE
    return root


def text(
    root: ElementTree.Element, x: float, y: float, words: str, kind: str = "", anchor: str = "start"
) -> None:
    """Write words at a place."""
    made = ElementTree.SubElement(root, "text", x=f"{x:.1f}", y=f"{y:.0f}")
    made.set("text-anchor", anchor)
    if kind:
        made.set("class", kind)
    made.text = words
