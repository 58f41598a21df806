"""The traces, files and names in docs/internals are those of today's code."""

from __future__ import annotations

import ast
import builtins
import contextlib
import importlib
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

REPOSITORY = Path(__file__).parents[2]
INTERNALS = REPOSITORY / "docs" / "internals"
PACKAGES = (REPOSITORY / "opsmith", REPOSITORY / "emulators")
PAGES = sorted(page.name for page in INTERNALS.glob("*.md"))
FILES = (".py", ".h", ".cpp", ".j2", ".md", ".toml")
#: Groups of entry points, which are no modules.
GROUPS = ("opsmith.commands", "opsmith.languages", "opsmith.checks", "opsmith.targets")
#: A dotted name whose first part is longer than the variables of kernels, or the name of a class.
NAME = re.compile(r"[A-Za-z_]\w+(\.\w+)+|([A-Z][a-z0-9]+){2,}")
TRACES = dict(
    re.findall(r"^```text (\w+)\n(.*?)^```$", (INTERNALS / "traces.md").read_text(), re.M | re.S)
)
PROGRAM = """
import inspect, json, sys
from pathlib import Path

import torch
from jaxtyping import Float
from torch import Tensor, nn

import opsmith
from opsmith.checks.cases.subject import subjects_of
from opsmith.checks.protocol import selected
from opsmith.checks.trial.trial import Trial

ROOT = Path(opsmith.__file__).parent


@opsmith.op("traced::double")
def double(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    return x * 2


class Model(nn.Module):
    def forward(self, x):
        return double(x) + 1


def entered(function):
    files = {}

    def note(frame, event, argument):
        code = frame.f_code
        is_function = code.co_flags & inspect.CO_OPTIMIZED  # and no module or class being made
        if event == "call" and is_function and code.co_filename.startswith(str(ROOT)):
            files.setdefault(str(Path(code.co_filename).relative_to(ROOT)), None)

    sys.setprofile(note)
    try:
        function()
    finally:
        sys.setprofile(None)
    return list(files)


x = torch.ones(3)
(check,) = selected(["mutation"])
trial = Trial(subjects_of(double)[0], check.name)
export = dict(target="onnxruntime", say=None, verify=False)
double(x)
print(json.dumps({
    "call": entered(lambda: double(x)),
    "check": entered(lambda: check.run(trial)),
    "export": entered(lambda: opsmith.export(Model(), (x,), out=sys.argv[1], **export)),
}))
"""


@pytest.fixture(scope="module")
def traced(tmp_path_factory: pytest.TempPathFactory) -> dict[str, list[str]]:
    out = tmp_path_factory.mktemp("traces") / "model"
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(out)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow(cases=3)  # one process traces all three
@pytest.mark.parametrize("name", ["call", "check", "export"])
def test_a_trace_enters_the_files_that_its_page_lists_in_that_order(
    name: str, traced: dict[str, list[str]]
) -> None:
    listed = [line.split()[0] for line in TRACES[name].splitlines()]
    assert len(listed) > 3
    assert [file for file in traced[name] if file in listed] == listed


def test_every_package_and_folder_has_its_place_on_a_page() -> None:
    text = "".join(page.read_text() for page in INTERNALS.glob("*.md"))
    folders = {
        path.parent.relative_to(REPOSITORY / "opsmith")
        for path in (REPOSITORY / "opsmith").glob("*/*/*.py")
    }
    missing = [
        str(folder)
        for folder in sorted(folders)
        if folder.parts[0] in ("kernels", "operators", "targets", "checks")
        if f"`{folder.name}/`" not in text
    ]
    assert not missing


def test_every_file_that_a_page_names_is_there() -> None:
    for page in INTERNALS.glob("*.md"):
        for name in re.findall(r"`(opsmith/[\w./-]+|tests/[\w./-]+)`", page.read_text()):
            assert (REPOSITORY / name).exists(), f"{page.name}: {name}"


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
    names = [name for name in names if name not in GROUPS]
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
