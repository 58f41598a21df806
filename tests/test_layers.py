"""The arrows between the parts: what may import what, and what is imported late; and the house."""

import ast
import io
import re
import subprocess
import sys
import tokenize
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from test_size import PRODUCTS

from opsmith.targets import all_targets

try:
    import tomllib
except ImportError:  # Python 3.10
    import tomli as tomllib

REPOSITORY = Path(__file__).parents[1]


def run_python(script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, cwd=REPOSITORY
    )


def test_imports_go_downwards():
    tool = Path(sys.executable).with_name("lint-imports")
    done = subprocess.run(
        [tool, "--no-logo", "--no-cache"],
        capture_output=True,
        text=True,
        check=False,
        cwd=REPOSITORY,
    )
    assert done.returncode == 0, done.stdout


def test_every_target_is_in_the_contract_that_keeps_them_apart():
    configuration = tomllib.loads((REPOSITORY / "pyproject.toml").read_text())
    contracts = configuration["tool"]["importlinter"]["contracts"]
    (apart,) = (one for one in contracts if one["type"] == "independence")
    own = [target for target in all_targets() if type(target).__module__.startswith("opsmith.")]
    assert apart["modules"] == [f"opsmith.targets.{target.name}" for target in own]


def test_a_signature_is_read_without_torch():
    # The package `opsmith` itself brings torch in, so a bare stand-in takes its place here.
    script = """
import importlib, pkgutil, sys, types
sys.modules["torch"] = None
package = types.ModuleType("opsmith")
package.__path__ = ["opsmith"]
sys.modules["opsmith"] = package
import opsmith.signature
for module in pkgutil.iter_modules(opsmith.signature.__path__):
    importlib.import_module("opsmith.signature." + module.name)
"""
    done = run_python(script)
    assert done.returncode == 0, done.stderr


LATE = ["cmake", "hypothesis", "jinja2", "netron", "rich", "tree_sitter", "typer"]
"""Beside the packages of all targets."""


def test_importing_opsmith_imports_torch_and_little_else():
    # What `import torch` brings along by itself is not opsmith's doing.
    script = f"""
import sys
import torch
before = set(sys.modules)
import opsmith
opsmith.op
from opsmith.targets import all_targets
packages = {{package for target in all_targets() for package in target.packages}}
assert "onnxruntime" in packages
late = packages.union({LATE!r}) & (set(sys.modules) - before)
assert not late, late
"""
    done = run_python(script)
    assert done.returncode == 0, done.stderr


@pytest.mark.slow(cases=2)
@pytest.mark.parametrize("name", ["signature", "kernels", "operators", "checks", "cli"])
def test_every_part_imports_on_its_own(name):
    script = f"""
import importlib, pkgutil
package = importlib.import_module("opsmith.{name}")
for module in pkgutil.walk_packages(package.__path__, package.__name__ + "."):
    importlib.import_module(module.name)
"""
    done = run_python(script)
    assert done.returncode == 0, done.stderr


def test_no_two_classes_have_one_name():
    places = defaultdict(list)
    for path in sorted((REPOSITORY / "opsmith").rglob("*.py")):
        # In a wheel these modules stand in for opsmith's, so their classes are called alike.
        if "wheels/runtime" in path.as_posix():
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef):
                places[node.name].append(f"{path.relative_to(REPOSITORY)}:{node.lineno}")
    assert len(places) > 400
    assert {name: where for name, where in places.items() if len(where) > 1} == {}


def test_the_tests_import_each_other_by_names_of_their_own():
    """pytest puts every folder of the tests on one path, and a process imports a name once.

    Tests of the site put the folder of its generator there too.
    """
    places = defaultdict(list)
    tested = [
        file
        for file in (REPOSITORY / "tests").rglob("*.py")
        if file.name != "conftest.py" and any(file.parent.glob("test_*.py"))
    ]
    for file in [*tested, *(REPOSITORY / "docs" / "site").glob("*.py")]:
        places[file.name].append(str(file.relative_to(REPOSITORY)))
    assert [found for found in places.values() if len(found) > 1] == []


#: Folders of tests without a package in opsmith/: what each is for, the Makefile or its files say.
TIERS = [
    *(
        "corpus",
        "docs",
        "faults",
        "faults/in_ascendc",
        "faults/in_cuda",
        "faults/in_half",
        "fuzz",
        "gallery",
        "gallery/perception",
        "in_triton",
        "npu",
        "npu/device",
    ),
]


def test_the_tests_stand_where_what_they_test_stands_and_no_folder_is_long():
    tests = REPOSITORY / "tests"
    folders = {file.parent for file in tests.rglob("*.py")}
    tested = {folder for folder in folders if any(folder.glob("test_*.py"))} - {tests}
    names = {folder.relative_to(tests).as_posix() for folder in tested}
    assert [
        name
        for name in sorted(names - {*TIERS})
        if not ((REPOSITORY / "opsmith" / name).is_dir() or (REPOSITORY / name).is_dir())
    ] == []
    long = {folder: sum(file.is_file() for file in folder.iterdir()) for folder in folders}
    packages = (REPOSITORY / "opsmith", REPOSITORY / "emulators")
    for init in (init for package in packages for init in package.rglob("__init__.py")):
        long[init.parent] = sum(file.is_file() for file in init.parent.iterdir()) - 1
    assert {folder: count for folder, count in long.items() if count > 20} == {}


@pytest.mark.parametrize("room", ["checks", "kernels", "operators"])
def test_few_files_of_a_room_stand_outside_its_folders(room):
    files = (REPOSITORY / "opsmith" / room).glob("*.py")
    loose = [file.name for file in files if file.name != "__init__.py"]
    assert len(loose) <= 5, loose


#: The file whose names stand for `Any` in the core, and the files of the core.
UNTYPED = REPOSITORY / "opsmith" / "untyped.py"
CORE = [
    path
    for path in sorted((REPOSITORY / "opsmith").rglob("*.py"))
    if not PRODUCTS.match(path.relative_to(REPOSITORY).as_posix())
]


def unexplained(text: str) -> Iterator[int]:
    """The lines of a file that use `Any` without a comment; an order to a checker is none."""
    comments = {
        token.start[0]
        for token in tokenize.generate_tokens(io.StringIO(text).readline)
        if token.type == tokenize.COMMENT and not token.string.startswith(("# type:", "# noqa"))
    }
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            # An annotation in quotes, and the first argument of `cast`.
            uses = re.fullmatch(r"(\w+\[.*)?\bAny\b\]*", node.value)
        else:
            uses = "Any" in (getattr(node, "id", ""), getattr(node, "attr", ""))
        if uses and node.lineno not in comments:
            yield node.lineno


def test_any_has_a_reason_in_the_core():
    found = [
        f"{path.relative_to(REPOSITORY)}:{line}"
        for path in CORE
        if path != UNTYPED
        for line in unexplained(path.read_text())
    ]
    assert not found, "\n".join(
        [f"write object, a name of {UNTYPED.name}, or the reason in a comment on the line:", *found]
    )


def test_every_name_for_any_has_a_reason_above_it():
    text = UNTYPED.read_text()
    lines = text.splitlines()
    names = [node for node in ast.parse(text).body if isinstance(node, ast.AnnAssign)]
    assert 3 <= len(names) <= 10
    for node in names:
        assert lines[node.lineno - 2].startswith("#: "), ast.unparse(node)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("from typing import Any\n\n\ndef f(x: Any) -> None: ...", 4),
        ("from typing import Any\nTable = dict[str, Any]", 2),
        ("import typing\n\nx: typing.Any = 1", 3),
        ("from typing import Any, cast\ny = cast('Any', 1)", 2),
        ("from typing import Any\ny: 'dict[str, Any]' = {}", 2),
        ("from typing import Any\nx: Any = f()  # type: ignore[misc]", 2),
        ("from typing import Any\n# of an untyped module\nx: Any = f()", 3),
    ],
)
def test_a_use_without_a_reason_is_found(text: str, line: int):
    assert list(unexplained(text)) == [line]


@pytest.mark.parametrize(
    "text",
    [
        "from typing import Any\nx: Any = f()  # of an untyped module",
        '"""Any value."""\n\nfrom opsmith.untyped import Value\n\nx: Value = 1',
        "def f(x: object) -> None:\n    print('Any value, as in dict[str, Any]')",
    ],
)
def test_a_use_with_a_reason_is_let_be(text: str):
    assert not list(unexplained(text))


def test_the_core_is_what_is_read():
    rooms = {path.relative_to(REPOSITORY / "opsmith").parts[0] for path in CORE}
    assert {"system", "compat", "signature", "kernels", "operators", "targets", "cli"} <= rooms
    assert "checks" not in rooms
