"""The modules of opsmith that an artifact carries, so that it needs no opsmith.

They are those that ``package`` imports, directly or not: they read declarations, and import nothing
but Python, NumPy and JAX. In the artifact they import each other by their places in it.
"""

from __future__ import annotations

import re
from pathlib import Path

_ROOT = Path(__file__).parents[2]
_OWN = "targets.jax.package"
FOLDER = "_opsmith"
_IMPORT = re.compile(r"^(\s*from )opsmith\.([\w.]+)( import )", re.MULTILINE)
_NAMES = re.compile(r"^\s*from opsmith\.([\w.]+) import (?:\(([^)]*)\)|(.*))$", re.MULTILINE)


def modules() -> dict[str, str]:
    """Each module's text by its path within the artifact's package."""
    found: dict[str, str] = {}
    waiting = [
        f"{_OWN}.{path.stem}" for path in sorted((_ROOT / "targets/jax/package").glob("*.py"))
    ]
    while waiting:
        module = waiting.pop().removesuffix(".__init__")
        path = _file(module)
        place = _place(module, path)
        if place in found:
            continue
        text = path.read_text(encoding="utf-8")
        if path.name == "__init__.py":
            # What a package gathers from its modules is not needed, nor are all of them there.
            found[place] = '"""Part of opsmith."""\n'
            continue
        waiting += _imported(text)
        found[place] = _relocated(text, place)
    folders = {str(Path(place).parent) for place in found}
    for folder in (FOLDER, *folders):
        found.setdefault(f"{folder}/__init__.py", '"""Part of opsmith."""\n')
    return dict(sorted(found.items()))


def place_of(module: str) -> str:
    """The module within the artifact's package that ``opsmith.<module>`` is, with dots."""
    return f"{FOLDER}.{module.replace(_OWN, 'jax')}"


def _file(module: str) -> Path:
    path = _ROOT.joinpath(*module.split("."))
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def _place(module: str, path: Path) -> str:
    place = place_of(module).replace(".", "/")
    return f"{place}/__init__.py" if path.name == "__init__.py" else f"{place}.py"


def _imported(text: str) -> list[str]:
    """The modules that a text imports from opsmith."""
    found = []
    for match in _NAMES.finditer(text):
        module = match[1]
        if _file(module).name != "__init__.py":
            found.append(module)
            continue
        for name in re.findall(r"\w+", match[2] or match[3]):
            found.append(f"{module}.{name}")
    return found


def _relocated(text: str, place: str) -> str:
    """`text` with its imports of opsmith as they are from `place`."""
    dots = "." * place.count("/")
    return _IMPORT.sub(lambda m: f"{m[1]}{dots}{m[2].replace(_OWN, 'jax')}{m[3]}", text)
