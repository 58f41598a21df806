"""The page that shows the gallery: what follows from each declaration, graphs, and figures."""

from __future__ import annotations

import importlib
import io
import re
import sys
from html import escape
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
#: A row of the README's figures whose ratio is a speed: "17–40 × faster".
_SPEED = re.compile(r"([\d.]+)(?:–([\d.]+))? × faster")

_HEAD = """# The gallery

Operators that people really use, each with its reference, its kernels and its source. What is drawn
here is what the declarations say today: the trees are those of `opsmith show`, the graphs those of
`torch.export`.
"""


def page() -> str:
    """The page's Markdown."""
    parts = [_HEAD]
    if str(ROOT) not in sys.path:
        sys.path.append(str(ROOT))
    for folder in sorted((ROOT / "gallery").iterdir()):
        if (folder / "README.md").exists():
            parts.append(_operator(folder))
    parts.append(_figures())
    return "\n".join(parts)


def _operator(folder: Path) -> str:
    from opsmith.cli.show import tree

    readme = (folder / "README.md").read_text(encoding="utf-8")
    lead = next(block for block in readme.split("\n\n") if not block.startswith("#"))
    module = importlib.import_module(f"gallery.{folder.name}.{folder.name}")
    operator = _declared(module, folder.name)
    drawn = _text(tree(operator))
    link = f"../gallery/{folder.name}/README.md"
    return (
        f"## {folder.name}\n\n{lead}\n\n[Its contract, and how its kernels work]({link}).\n\n"
        f"```text\n{drawn}```\n\n{_graph(operator)}"
    )


def _declared(module: Any, name: str) -> Any:
    from opsmith.operators import Operator

    found = [value for value in vars(module).values() if isinstance(value, Operator)]
    return next((one for one in found if one.name.endswith(f"::{name}")), found[0])


def _text(tree: Any) -> str:
    from rich.console import Console

    console = Console(file=io.StringIO(), width=100)
    console.print(tree)
    return "\n".join(line.rstrip() for line in console.file.getvalue().splitlines()) + "\n"


def _graph(operator: Any) -> str:
    """What `torch.export` makes of a call with sampled arguments."""
    import torch

    import opsmith.testing
    from opsmith.errors import OpsmithError

    class Call(torch.nn.Module):
        def forward(self, *arguments: Any) -> Any:
            return operator(*arguments)

    try:
        arguments = next(opsmith.testing.cases(operator, examples=1))
        given = tuple(arguments[one.name] for one in operator.signature.parameters)
        program = torch.export.export(Call(), given)
    except (OpsmithError, StopIteration, RuntimeError):
        return ""
    lines = [str(node.format_node()) for node in program.graph.nodes]
    return "```text\n" + "\n".join(line for line in lines if line != "None") + "\n```\n"


def _figures() -> str:
    rows, what = [], ""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for line in text.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        speed = _SPEED.fullmatch(cells[-1])
        if speed is None:
            continue
        # What has no label, or one with dots, goes on with what a row above named.
        label, beside = cells[0], cells[2].rpartition(" ms, ")[2]
        what = label if label and not label.startswith("…") else what
        name = what if label in (what, "") else f"{what.partition(',')[0]} {label}"
        rows.append((f"{name}, beside {beside}", float(speed[1]), float(speed[2] or speed[1])))
    link = "[How they were measured](../README.md#figures)."
    lead = f"Times faster than what is named, a band where there are several. {link}"
    return f"## How fast\n\n{lead}\n\n{bars(rows)}\n"


def bars(rows: list[tuple[str, float, float]]) -> str:
    """A chart of ranges as SVG, in the colours of the page that it is on.

    Args:
        rows: label, lowest and highest value.
    """
    widest = max(high for _, _, high in rows)
    parts = [
        f'<svg viewBox="0 0 800 {44 * len(rows)}" role="img" fill="currentColor" '
        'font-family="sans-serif" font-size="13">'
    ]
    for at, (label, low, high) in enumerate(rows):
        top, left, end = 44 * at, 720 * low / widest, 720 * high / widest
        value = f"{low:g} ×" if low == high else f"{low:g}–{high:g} ×"
        plain = escape(re.sub(r"[`|]", "", label))
        bar = f'y="{top + 20}" height="14"'
        parts += [
            f'<text x="0" y="{top + 14}">{plain}</text>',
            f'<rect x="0" {bar} width="{left:.0f}" opacity="0.6"/>',
            f'<rect x="{left:.0f}" {bar} width="{end - left:.0f}" opacity="0.3"/>',
            f'<text x="{end + 6:.0f}" y="{top + 32}">{value}</text>',
        ]
    return "".join([*parts, "</svg>"])
