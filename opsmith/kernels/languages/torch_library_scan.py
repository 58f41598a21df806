"""Search sources with ``api="torch"`` for the operators that they define."""

from __future__ import annotations

import re
from pathlib import Path

from opsmith.signature.model import Signature

_COMMENTS = re.compile(r'//[^\n]*|/\*.*?\*/|("(?:\\.|[^"\\])*")', re.DOTALL)
_BLOCK = re.compile(r"\b(?:STABLE_)?TORCH_LIBRARY(_FRAGMENT)?\s*\(\s*(\w+)\s*,")


def defines_operator(source: Path, signature: Signature) -> bool:
    """Return whether a source with ``api="torch"`` defines the operator, not only implements it.

    The source must have ``TORCH_LIBRARY(ns, …)`` or ``TORCH_LIBRARY_FRAGMENT(ns, …)``, and a
    ``def`` whose text begins with the operator's name. Otherwise, in a process without opsmith,
    other code must define the operator before the library is loaded.
    """
    text = _COMMENTS.sub(lambda match: match[1] or " ", source.read_text(errors="replace"))
    namespaces = {match[2] for match in _BLOCK.finditer(text)}
    name = re.escape(signature.name)
    defined = re.search(
        rf'\bdef\s*\(\s*(?:TORCH_SELECTIVE_\w+\s*\(\s*)?R?"\(?(\w+::)?{name}\b', text
    )
    return signature.namespace in namespaces and defined is not None
