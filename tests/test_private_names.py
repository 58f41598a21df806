"""No file but those of opsmith.compat uses a private name of another package, and each is there."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1] / "opsmith"
COMPAT = ROOT / "compat"
OWN = {"opsmith", *sys.stdlib_module_names}


def is_private(name: str) -> bool:
    """Whether a part of a dotted name is private; ``__version__`` is not."""
    return any(part.startswith("_") and not part.startswith("__") for part in name.split("."))


def private_names(text: str) -> Iterator[tuple[int, str]]:
    """The private names of other packages that a file uses: line, and dotted name."""
    tree = ast.parse(text)
    known: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                first = alias.name.partition(".")[0]
                known[alias.asname or first] = alias.name if alias.asname else first
                if first not in OWN and is_private(alias.name):
                    yield node.lineno, alias.name
        elif isinstance(node, ast.ImportFrom) and not node.level and node.module:
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                known[alias.asname or alias.name] = name
                if node.module.partition(".")[0] not in OWN and is_private(name):
                    yield node.lineno, name
    inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and id(node) not in inner:
            name = dotted(node, known)
            if name is not None and name.partition(".")[0] not in OWN and is_private(name):
                yield node.lineno, name


def dotted(node: ast.AST, known: dict[str, str]) -> str | None:
    """What an expression names, where it is a chain of attributes of something imported."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in known:
        return None
    return ".".join([known[node.id], *reversed(parts)])
