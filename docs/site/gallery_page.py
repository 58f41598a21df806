"""The page that shows the gallery: what follows from each declaration, graphs, and figures."""

from __future__ import annotations

import builtins
import importlib
import inspect
import io
import re
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any

import graphs
import repository

ROOT = Path(__file__).parents[2]
#: A row of the figures whose ratio is a speed: "17–40 × faster".
_SPEED = re.compile(r"([\d.]+)(?:–([\d.]+))? × faster")

_HEAD = """# The gallery

Operators that people really use, each with its reference, its kernels and its source. What is drawn
here is what the declarations say today: the trees are those of `opsmith show`, the graphs those of
`torch.export` and of `opsmith export --target onnx`.
"""


def page() -> str:
    """The page's Markdown."""
    parts = [_HEAD]
    if str(ROOT) not in sys.path:
        sys.path.append(str(ROOT))
    gallery = ROOT / "gallery"
    # The README's order: what most people look for comes first.
    for name in re.findall(r"\]\((\w+)/README\.md\)", (gallery / "README.md").read_text("utf-8")):
        parts.append(_operator(gallery / name))
    parts.append(_figures())
    return "\n".join(parts)


def _operator(folder: Path) -> str:
    from opsmith.cli.commands.show import tree

    readme = (folder / "README.md").read_text(encoding="utf-8")
    lead = next(block for block in readme.split("\n\n") if not block.startswith("#"))
    module = importlib.import_module(f"gallery.{folder.name}.{folder.name}")
    operator = _declared(module, folder.name)
    drawn = _text(tree(operator))
    link = f"../gallery/{folder.name}/README.md"
    return (
        f"## {folder.name}\n\n{lead}\n\n[Its contract, and how its kernels work]({link}).\n\n"
        f"```text\n{drawn}```\n\n{_graphs(operator)}"
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


def _graphs(operator: Any) -> str:
    """What `torch.export` makes of a call with sampled arguments, and what ONNX gets of it."""
    import torch

    import opsmith.testing

    class Call(torch.nn.Module):
        def forward(self, *arguments: Any) -> Any:
            return operator(*arguments)

    # Inputs are called what the parameters are; a builtin's name PyTorch would change.
    names = [f"{name}_" if hasattr(builtins, name) else name for name in operator.signature.by_name]
    kind = inspect.Parameter.POSITIONAL_OR_KEYWORD
    vars(Call.forward)["__signature__"] = inspect.Signature(
        [inspect.Parameter(name, kind) for name in ("self", *names)]
    )
    cases = list(opsmith.testing.cases(operator, examples=8))
    # ONNX's own evaluator divides by a size less one.
    arguments = next((case for case in cases if _least_size(case) > 1), cases[0])
    given = tuple(arguments[one.name] for one in operator.signature.parameters)
    nodes = graphs.exported(torch.export.export(Call(), given))
    picture = graphs.drawn(nodes, f"what torch.export makes of a call of {operator.name}")
    return (
        f"What `torch.export` makes of a call:\n\n{picture}\n\n"
        f"In ONNX, where no library is beside the model: {_in_onnx(operator, Call(), given)}\n"
    )


def _least_size(case: Mapping[str, Any]) -> int:
    return min(size for value in case.values() for size in getattr(value, "shape", ()))


def _in_onnx(operator: Any, model: Any, given: tuple[Any, ...]) -> str:
    """The graph of standard ONNX operators, how many there are, or why there is none."""
    import tempfile

    import onnx

    import opsmith
    from opsmith.errors import ExportError

    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "dist"
        try:
            opsmith.export(model, given, target="onnx", out=out, say=None)
        except ExportError as error:
            return f"refused. *{error}*\n"
        nodes = graphs.onnx(onnx.load(out / "model.onnx"))
    if len(nodes) > graphs.MOST:
        return f"{_counted(nodes)}.\n"
    return f"\n\n{graphs.drawn(nodes, f'{operator.name} in ONNX')}\n"


def _counted(nodes: Sequence[graphs.Node]) -> str:
    calls = Counter(node.lines[0] for node in nodes if node.is_call)
    words = ", ".join(f"{count} {name}" for name, count in calls.most_common())
    return f"{calls.total()} nodes, {words}"


def _figures() -> str:
    rows, what = [], ""
    text = (ROOT / "docs/explanation/performance.md").read_text(encoding="utf-8")
    for line in repository.without_names(text).splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        speed = _SPEED.fullmatch(cells[-1])
        if speed is None:
            continue
        # What has no label, or one with dots, goes on with what a row above named.
        label, beside = cells[0], cells[2].rpartition(" ms, ")[2]
        what = label if label and not label.startswith("…") else what
        name = what if label in (what, "") else f"{what.partition(',')[0]} {label}"
        rows.append((f"{name}, beside {beside}", float(speed[1]), float(speed[2] or speed[1])))
    link = "[How they were measured](explanation/performance.md)."
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
