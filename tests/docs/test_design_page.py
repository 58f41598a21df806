"""The names in docs/internals are those of today's code."""

from __future__ import annotations

import ast
import builtins
import contextlib
import importlib
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
PACKAGES = (REPOSITORY / "opsmith", REPOSITORY / "emulators")
INTERNALS = REPOSITORY / "docs" / "internals"
PAGES = sorted(page.name for page in INTERNALS.glob("*.md"))
FILES = (".py", ".h", ".cpp", ".j2", ".md", ".toml")
#: A dotted name whose first part is longer than the variables of kernels, or the name of a class.
NAME = re.compile(r"[A-Za-z_]\w+(\.\w+)+|([A-Z][a-z0-9]+){2,}")


@cache
def modules() -> dict[str, list[ast.Module]]:
    """Return the parsed modules of the packages by their last name; a folder is its __init__."""
    found: dict[str, list[ast.Module]] = {}
    for package in PACKAGES:
        for path in package.rglob("*.py"):
            name = path.parent.name if path.stem == "__init__" else path.stem
            found.setdefault(name, []).append(ast.parse(path.read_text()))
    return found


@cache
def members() -> dict[str, set[str]]:
    """Return what modules and classes have, by the name of the module or class."""
    found: dict[str, set[str]] = {}
    for name, trees in modules().items():
        for tree in trees:
            found.setdefault(name, set()).update(named(tree.body))
            for node in ast.walk(tree):
                if isinstance(node, ast.ClassDef):
                    found.setdefault(node.name, set()).update(named(node.body))
    return found


def named(body: list[ast.stmt]) -> Iterator[str]:
    """Yield the names that statements define, and those that the methods give to the instance."""
    for node in body:
        match node:
            case ast.FunctionDef() | ast.ClassDef():
                yield node.name
                yield from (
                    target.attr
                    for inner in ast.walk(node)
                    if node.name == "__init__" and isinstance(inner, ast.Assign | ast.AnnAssign)
                    for target in ([inner.target] if hasattr(inner, "target") else inner.targets)
                    if isinstance(target, ast.Attribute)
                )
            case ast.AnnAssign(target=ast.Name(id=name)):
                yield name
            case ast.Assign(targets=targets):
                yield from (target.id for target in targets if isinstance(target, ast.Name))


def spans(page: str) -> set[str]:
    """Return what a page names between backquotes, outside of its examples."""
    text = re.sub(r"^ *```.*?^ *```", "", (INTERNALS / page).read_text(), flags=re.M | re.S)
    return set(re.findall(r"`([^`\n]+)`", text))


def is_there(name: str) -> bool:
    """Return whether a dotted name, or the name of a class, is one of today's code."""
    owner, _, member = name.rpartition(".")
    if not owner:
        return name in members() or hasattr(builtins, name)
    if not name.startswith(("opsmith.", "torch.")):
        return member in members().get(owner.rpartition(".")[2], ())
    with contextlib.suppress(ImportError):
        importlib.import_module(name)
        return True
    with contextlib.suppress(ImportError):
        return hasattr(importlib.import_module(owner), member)
    return False


@pytest.mark.parametrize("page", PAGES)
def test_every_module_function_and_class_that_a_page_names_is_there(page: str) -> None:
    names = [name for name in spans(page) if not name.endswith(FILES) and NAME.fullmatch(name)]
    assert not [name for name in names if not is_there(name)]


def test_every_file_that_the_design_names_is_there() -> None:
    places = [
        str(path.relative_to(package))
        for package in PACKAGES
        for path in package.rglob("*")
        if path.is_file() or path.is_dir()
    ]
    missing = [
        name
        for name in spans("design.md")
        if name.endswith((*FILES, "/")) and not name.startswith("tests/")
        if name not in ("rows.cpp", "pyproject.toml", "opsmith/", "emulators/")
        if not any(f"/{place}".endswith(f"/{name.rstrip('/')}") for place in places)
    ]
    assert not missing


@pytest.mark.parametrize("wrong", ["rounding.no_such_function", "NoSuchClass", "Trial.no_such"])
def test_a_name_that_is_gone_is_seen(wrong: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(globals(), "spans", lambda page: {wrong, "Trial.compare", "CaseRunner"})
    with pytest.raises(AssertionError, match=re.escape(wrong)):
        test_every_module_function_and_class_that_a_page_names_is_there("design.md")
