"""Copy modules of opsmith into an exported package, so that the package does not need opsmith.

The copies are the modules that the package starts from, and every module that these import,
directly or not. They are written to a folder of the package, and import each other by their new
places.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

_ROOT = Path(__file__).parents[3]
_IMPORT = re.compile(r"^(\s*from )opsmith(?:\.([\w.]+))?( import )", re.MULTILINE)
_EMPTY = '"""Part of opsmith."""\n'

FOLDER = "_opsmith"
"""The folder of the package that the modules are copied into."""


def modules(
    first: Sequence[str],
    *,
    moved: Mapping[str, str] | None = None,
    instead: Mapping[str, Path] | None = None,
    folder: str = FOLDER,
) -> dict[str, str]:
    """Return the text of each copied module, by its path within the package.

    Args:
        first: modules to start from, without ``opsmith.``.
        moved: new prefixes of modules' names, by the old prefix: ``{"targets.jax.package":
            "jax"}``; ``""`` for modules that lie in the folder itself.
        instead: files to copy in place of modules.
        folder: the folder of the package for the copies; ``""`` for the package's own.
    """
    moved = moved or {}
    instead = instead or {}
    files: dict[str, Path] = {}
    waiting = list(first)
    while waiting:
        module = waiting.pop()
        if module in files:
            continue
        files[module] = instead.get(module, _file(module))
        waiting += _imported(files[module].read_text(encoding="utf-8"), instead)
    found = {}
    for module, file in files.items():
        is_package = file.name == "__init__.py" or any(o.startswith(f"{module}.") for o in files)
        inner = _moved(module, moved).replace(".", "/")
        inner += "/__init__.py" if is_package else ".py"
        dots = "." * (1 + inner.count("/"))
        place = f"{folder}/{inner}".lstrip("/")
        found[place] = _relocated(file.read_text(encoding="utf-8"), dots, moved)
    for place in list(found):
        for parent in Path(place).parents[:-1]:
            found.setdefault(f"{parent}/__init__.py", _EMPTY)
    return dict(sorted(found.items()))


def place_of(module: str, moved: Mapping[str, str] | None = None) -> str:
    """Return the dotted name within the package of the copy of ``opsmith.<module>``."""
    return f"{FOLDER}.{_moved(module, moved or {})}"


def _moved(module: str, moved: Mapping[str, str]) -> str:
    for beginning, there in moved.items():
        if module == beginning or module.startswith(f"{beginning}."):
            return (there + module[len(beginning) :]).lstrip(".")
    return module


def _file(module: str) -> Path:
    path = _ROOT.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def _imported(text: str, instead: Mapping[str, Path]) -> Iterator[str]:
    """Yield the modules that a text imports from opsmith when it runs."""
    tree = ast.parse(text)
    only_for_types = {
        id(node)
        for branch in ast.walk(tree)
        if isinstance(branch, ast.If) and ast.unparse(branch.test) == "TYPE_CHECKING"
        for node in ast.walk(branch)
    }
    for node in ast.walk(tree):
        if not isinstance(node, ast.ImportFrom) or id(node) in only_for_types:
            continue
        head, _, module = (node.module or "").partition(".")
        if head != "opsmith":
            continue
        for alias in node.names:
            inner = f"{module}.{alias.name}".lstrip(".")
            if inner in instead or _file(inner).is_file():
                yield inner
            elif module:
                yield module


def _relocated(text: str, dots: str, moved: Mapping[str, str]) -> str:
    """Return `text` with imports of opsmith made relative; `dots` lead to the copies' folder."""
    return _IMPORT.sub(lambda m: f"{m[1]}{dots}{_moved(m[2] or '', moved)}{m[3]}", text)
