"""No file but those of opsmith.compat uses a private name of another package, and each is there."""

from __future__ import annotations

import ast
import functools
import importlib.metadata
import importlib.util
import itertools
import pkgutil
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "opsmith"
COMPAT = ROOT / "compat"
OWN = {"opsmith", *sys.stdlib_module_names}
#: Packages whose modules are also named by texts.
_MODULE = re.compile(r"(torch|onnx|onnxscript|triton|jax)(\.[A-Za-z_]\w*)+")


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
        elif isinstance(node, ast.Constant):
            # As importlib, or a logger, takes it.
            word = str(node.value)
            if _MODULE.fullmatch(word) and is_private(word):
                yield node.lineno, word
    inner = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and id(node) not in inner:
            name = dotted(node, known)
            if name is not None and name.partition(".")[0] not in OWN and is_private(name):
                yield node.lineno, name


def members(text: str) -> set[str]:
    """The private attributes and methods that the classes of a file give their own objects."""
    found: set[str] = set()
    for owner in ast.walk(ast.parse(text)):
        if not isinstance(owner, ast.ClassDef):
            continue
        for node in ast.walk(owner):
            if isinstance(node, ast.FunctionDef):
                found.add(node.name)
            elif isinstance(node, ast.AnnAssign | ast.Assign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                places = [part for target in targets for part in ast.walk(target)]
                found |= {part.id for part in places if isinstance(part, ast.Name)}
                found |= {part.attr for part in places if isinstance(part, ast.Attribute)}
    return found


@functools.cache  # reading all files takes seconds, which collecting the tests need not
def own_members() -> set[str]:
    """Return what an object of opsmith's may be asked for, wherever it is.

    `_schema` is a method of one class, which nothing else calls, and an attribute of PyTorch's
    operators, which it must not hide.
    """
    found = {name for path in ROOT.rglob("*.py") for name in members(path.read_text())}
    return found - {"_schema"}


def private_attributes(text: str) -> Iterator[tuple[int, str]]:
    """The private attributes of objects that are not opsmith's: line, and expression."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute):
            name, owner = node.attr, ast.unparse(node.value)
        elif (
            isinstance(node, ast.Call)
            and getattr(node.func, "id", "") in ("getattr", "hasattr", "setattr")
            and isinstance(node.args[1], ast.Constant)
        ):
            name, owner = str(node.args[1].value), ast.unparse(node.args[0])
        else:
            continue
        # `super()` and `self` are opsmith's own, and Python's own modules have no other names.
        if owner.partition(".")[0] in ("os", "sys") or owner in ("self", "cls", "super()"):
            continue
        if name.startswith("_opsmith"):
            continue  # what opsmith adds to objects of others
        # Operators of PyTorch's whose names begin so are as public as others.
        if (
            is_private(name)
            and name not in own_members()
            and owner not in ("torch.ops.aten", "_aten")
        ):
            yield node.lineno, f"{owner}.{name}"


def dotted(node: ast.AST, known: dict[str, str]) -> str | None:
    """What an expression names, where it is a chain of attributes of something imported."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name) or node.id not in known:
        return None
    return ".".join([known[node.id], *reversed(parts)])


FILES = sorted(path for path in ROOT.rglob("*.py") if COMPAT not in path.parents)
COMPAT_FILES = sorted(COMPAT.glob("*.py"))


def test_no_file_but_those_of_compat_uses_a_private_name_of_another_package():
    found = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in FILES
        for line, name in private_names(path.read_text())
    ]
    assert not found, "\n".join(["put these in opsmith/compat, with what each is for:", *found])


def test_no_file_but_those_of_compat_reads_a_private_attribute_of_an_object_of_another_package():
    found = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in FILES
        for line, name in private_attributes(path.read_text())
    ]
    assert not found, "\n".join(["put these in opsmith/compat, with what each is for:", *found])


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("def f(overload):\n    return overload._schema.name", "overload._schema"),
        ("def f(x):\n    return x.untyped_storage()._cdata", "x.untyped_storage()._cdata"),
        ("def f(node):\n    return getattr(node.target, '_schema', None)", "node.target._schema"),
        (
            "class A:\n    def close(self):\n        self.library._destroy()",
            "self.library._destroy",
        ),
    ],
)
def test_a_private_attribute_is_found(text: str, name: str):
    assert [found for _, found in private_attributes(text)] == [name]


@pytest.mark.parametrize(
    "text",
    [
        "import os\nos._exit(0)",
        "class A:\n    def f(self):\n        return self._x + super()._x",
        "def f(operator):\n    return operator._registration",
        "def f(x):\n    return x.__dict__",
        "_aten = torch.ops.aten\n_aten._cdist_forward.default",
    ],
)
def test_other_attributes_are_let_be(text: str):
    assert not list(private_attributes(text))


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("import torch._dynamo", "torch._dynamo"),
        ("from torch.utils import _pytree as tree", "torch.utils._pytree"),
        ("from torch._ops import OpOverload", "torch._ops.OpOverload"),
        ("import torch\ntorch._C.Graph().nodes()", "torch._C.Graph"),
        (
            "import torch as t\nt.onnx.symbolic_helper._is_none(1)",
            "torch.onnx.symbolic_helper._is_none",
        ),
        ("def f():\n    from onnxscript import values\n    values._x", "onnxscript.values._x"),
        ("import importlib\nimportlib.import_module('torch._guards')", "torch._guards"),
    ],
)
def test_a_private_name_is_found(text: str, name: str):
    assert name in [found for _, found in private_names(text)]


@pytest.mark.parametrize(
    "text",
    [
        "import torch\ntorch.nn.Module()._private",
        "import torch\ntorch.__version__",
        "import os\nos._exit(0)",
        "from opsmith.operators import _x",
    ],
)
def test_other_names_are_let_be(text: str):
    assert not list(private_names(text))


@dataclass(frozen=True)
class Use:
    """A definition of `opsmith.compat` that uses a private name.

    Attributes:
        where: the module and the definition.
        name: the private name.
        words: the definition's docstring, or the comment above it.
    """

    where: str
    name: str
    words: str


def uses(path: Path) -> Iterator[Use]:
    """The private names that a file of compat uses, by the definitions that use each."""
    tree = ast.parse(path.read_text())
    lines = path.read_text().splitlines()
    heads = [node for node in tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
    above = "\n".join(map(ast.unparse, heads))
    imported = {name for _, name in private_names(above)}
    local = {
        alias.asname or alias.name: f"{head.module}.{alias.name}"
        for head in heads
        if isinstance(head, ast.ImportFrom)
        for alias in head.names
    }
    whole = ast.get_docstring(tree) or ""
    for node in tree.body:
        if node in heads or isinstance(node, ast.Expr) or named(node) == "__all__":
            continue
        text = f"{above}\n{ast.unparse(node)}"
        found = {name for line, name in private_names(text) if line > len(above.splitlines())}
        read = {local.get(part.id) for part in ast.walk(node) if isinstance(part, ast.Name)}
        found |= imported & read
        imported -= read
        for name in sorted(found):
            words = documented(node, lines)
            yield Use(f"{path.stem}.{named(node)}", name, words)
    for name in sorted(imported):
        yield Use(path.stem, name, whole)


def documented(node: ast.stmt, lines: list[str]) -> str:
    """A definition's docstring, or the comment above an assignment."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return ast.get_docstring(node) or ""
    before = reversed(lines[: node.lineno - 1])
    comment = list(itertools.takewhile(lambda line: line.startswith("#:"), before))
    return " ".join(line.removeprefix("#:").strip() for line in reversed(comment))


def named(node: ast.stmt) -> str:
    """What a statement defines."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return node.name
    target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", node)
    return ast.unparse(target)


USES = [use for path in COMPAT_FILES for use in uses(path)]


@pytest.mark.parametrize("use", USES, ids=lambda use: f"{use.where}-{use.name}")
def test_a_private_name_says_what_is_missed_without_it_and_is_there(use: Use):
    assert "Private:" in use.words, f"{use.where} does not say which private name it uses, and why"
    require(use)


def require(use: Use) -> None:
    """Fail where the installed release has dropped a private name."""
    package = use.name.partition(".")[0]
    if importlib.util.find_spec(package) is None:
        pytest.skip(f"{package} is not installed here")
    try:
        found = pkgutil.resolve_name(use.name)
    except (ImportError, AttributeError) as error:
        release = importlib.metadata.version(package)
        pytest.fail(f"{package} {release} has no {use.name} ({error}). {use.where}: {use.words}")
    assert found is not None


#: The names behind "Private:", in a docstring or a comment, and the words that follow.
_STATED = re.compile(r"Private:((?:[\s#,]*``[\w.]+``)+)((?:(?!Private:|\"\"\"|\n\n).)*)", re.DOTALL)


def stated(path: Path) -> Iterator[Use]:
    """The private names that the words of a file of compat state, as those read by `getattr`."""
    for match in _STATED.finditer(path.read_text()):
        words = " ".join(match[2].replace("#:", "").split())
        for name in re.findall(r"[\w.]+", match[1]):
            yield Use(path.stem, name, words)


@pytest.mark.parametrize(
    "use",
    [use for path in COMPAT_FILES for use in stated(path)],
    ids=lambda use: f"{use.where}-{use.name}",
)
def test_a_private_name_that_is_stated_is_there(use: Use):
    if "in a release without it" not in use.words:
        require(use)


def test_a_stated_name_that_a_release_dropped_is_said_with_what_is_missed(tmp_path: Path):
    (tmp_path / "gone.py").write_text('"""Private: ``torch._C._gone``. Without it, no call."""\n')
    (use,) = stated(tmp_path / "gone.py")
    with pytest.raises(pytest.fail.Exception, match=r"no torch\._C\._gone .*Without it, no call"):
        require(use)


def test_every_file_of_compat_says_since_when():
    for path in COMPAT_FILES:
        words = ast.get_docstring(ast.parse(path.read_text())) or ""
        if path.stem not in (
            "__init__",
            "patch",
            "post_import",
        ):  # no private name
            assert re.search(r"since|from \d[\d.]+ on", words), path.name
        assert len(path.read_text().splitlines()) <= 300
