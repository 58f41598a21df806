"""An operator as HTML, which notebooks show for the last value of a cell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from html import escape

from opsmith.operators.core.source_location import shown_path
from opsmith.signature import Signature
from opsmith.signature.parameters import NO_DEFAULT


def html_of(signature: Signature, kernels: Mapping[str, str]) -> str:
    """Return the declaration of an operator and its kernels as a table.

    Args:
        kernels: the locations of the kernels by device type.
    """
    first = signature.doc.strip().partition("\n")[0]
    rows = "".join(
        f"<tr><td>{escape(kind)}</td><td><code>{escape(name)}</code></td>"
        f'<td style="text-align:left"><code>{escape(text)}</code></td></tr>'
        for kind, name, text in _rows(signature, kernels)
    )
    return f"<b>{escape(signature.qualname)}</b> {escape(first)}<table>{rows}</table>"


def _rows(signature: Signature, kernels: Mapping[str, str]) -> Iterator[tuple[str, str, str]]:
    for parameter in signature.parameters:
        default = "" if parameter.default is NO_DEFAULT else f" = {parameter.default!r}"
        kind = "argument, written" if parameter.mutated else "argument"
        yield kind, parameter.name, f"{parameter.annotation}{default}"
    for result in signature.results:
        yield "result", result.name, result.annotation
    for device, where in kernels.items():
        yield "kernel", device, shown_path(where)
