"""Graphs as pictures: what `torch.export` and the ONNX exporter leave, drawn from top to bottom."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

_HEIGHT, _GAP, _ROW, _LETTER = 40, 16, 76, 7.2
#: Beyond so many nodes nobody reads a picture.
MOST = 40


@dataclass(frozen=True)
class Node:
    """A box: an input, a call, or a result.

    Attributes:
        name: what other nodes call it.
        lines: what stands in it, one line or two.
        inputs: the nodes whose values it takes.
        is_call: whether it computes; inputs and results do not.
    """

    name: str
    lines: tuple[str, ...]
    inputs: tuple[str, ...] = field(default=())
    is_call: bool = False


def exported(program: Any) -> list[Node]:
    """The graph of a ``torch.export.ExportedProgram``; inputs that nothing takes are not drawn."""
    nodes = []
    for one in program.graph.nodes:
        inputs = tuple(dict.fromkeys(before.name for before in one.all_input_nodes))
        value = one.meta.get("val")
        if one.op == "placeholder" and not one.users:
            continue
        if one.op == "placeholder":
            nodes.append(Node(one.name, (one.name, _shown(value))))
        elif one.op == "output":
            nodes += [Node(f"result {k}", ("result",), (name,)) for k, name in enumerate(inputs)]
        else:
            nodes.append(Node(one.name, (str(one.target), _shown(value)), inputs, is_call=True))
    return nodes


def onnx(model: Any) -> list[Node]:
    """The graph of an ONNX model; constants are not drawn."""
    made = {one.name: one.name for one in model.graph.input}
    nodes = [Node(name, (name, "input")) for name in made]
    for k, one in enumerate(model.graph.node):
        if one.op_type == "Constant":
            continue
        name = f"{one.op_type} {k}"
        inputs = dict.fromkeys(made[key] for key in one.input if key in made)
        domain = f"{one.domain}::" if one.domain else ""
        nodes.append(Node(name, (f"{domain}{one.op_type}",), tuple(inputs), is_call=True))
        made |= dict.fromkeys(one.output, name)
    return nodes + [
        Node(f"result {one.name}", ("result",), (made[one.name],))
        for one in model.graph.output
        if one.name in made
    ]


def _shown(value: Any) -> str:
    """The dtype and sizes of a value, or the value."""
    if isinstance(value, tuple | list):
        return ", ".join(map(_shown, value))
    if not hasattr(value, "shape"):
        return str(value)
    return f"{str(value.dtype).removeprefix('torch.')} {'×'.join(map(str, value.shape)) or '()'}"


def drawn(nodes: Sequence[Node], label: str) -> str:
    """A graph as SVG, in the colours of the page that it is on.

    Args:
        nodes: in an order in which each comes after those whose values it takes.
        label: what a reader who sees no picture is told.
    """
    rows = _rows(nodes)
    width = max(sum(map(_width, row)) + _GAP * (len(row) - 1) for row in rows) + 2
    places: dict[str, tuple[float, float]] = {}
    boxes = []
    for at, row in enumerate(rows):
        left = (width - sum(map(_width, row)) - _GAP * (len(row) - 1)) / 2
        for node in row:
            middle = left + _width(node) / 2
            places[node.name] = (middle, at * _ROW + 1)
            boxes.append(_box(node, left, at * _ROW + 1))
            left += _width(node) + _GAP
    height = (len(rows) - 1) * _ROW + _HEIGHT + 2
    lines = [_line(places[before], places[node.name]) for node in nodes for before in node.inputs]
    return (
        f'<svg class="graph" viewBox="0 0 {width:.0f} {height}" style="max-width:{width:.0f}px" '
        f'role="img" aria-label="{escape(label)}" fill="currentColor" font-family="monospace" '
        f'font-size="12">{"".join([*lines, *boxes])}</svg>'
    )


def _rows(nodes: Sequence[Node]) -> list[list[Node]]:
    """Each node below all those whose values it takes, and inputs right above who takes them."""
    depth: dict[str, int] = {}
    for node in nodes:
        depth[node.name] = max((depth[before] + 1 for before in node.inputs), default=0)
    users = _users(nodes)
    for node in nodes:
        if not node.inputs and users.get(node.name):
            depth[node.name] = min(depth[one] for one in users[node.name]) - 1
    rows: list[list[Node]] = [[] for _ in range(max(depth.values()) + 1)]
    for node in nodes:
        rows[depth[node.name]].append(node)
    return [row for row in rows if row]


def _users(nodes: Sequence[Node]) -> Mapping[str, list[str]]:
    users: dict[str, list[str]] = {}
    for node in nodes:
        for before in node.inputs:
            users.setdefault(before, []).append(node.name)
    return users


def _width(node: Node) -> float:
    return max(map(len, node.lines)) * _LETTER + 16


def _box(node: Node, left: float, top: float) -> str:
    width, middle = _width(node), left + _width(node) / 2
    opacity = 0.16 if node.is_call else 0.05
    parts = [
        f'<rect x="{left:.1f}" y="{top}" width="{width:.1f}" height="{_HEIGHT}" rx="6" '
        f'fill-opacity="{opacity}" stroke="currentColor" stroke-opacity="0.5"/>'
    ]
    first = top + (25 if len(node.lines) == 1 else 17)
    for k, line in enumerate(node.lines):
        weight = ' font-weight="bold"' if node.is_call and not k else ""
        parts.append(
            f'<text x="{middle:.1f}" y="{first + 16 * k}" text-anchor="middle"{weight}>'
            f"{escape(line)}</text>"
        )
    return "".join(parts)


def _line(start: tuple[float, float], end: tuple[float, float]) -> str:
    (x, y), (to_x, to_y) = (start[0], start[1] + _HEIGHT), end
    half = (y + to_y) / 2
    return (
        f'<path d="M{x:.1f} {y} C{x:.1f} {half} {to_x:.1f} {half} {to_x:.1f} {to_y}" '
        'fill="none" stroke="currentColor" stroke-opacity="0.5"/>'
    )
