"""Commands, languages and checks of other packages are found by their entry points."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import typer

from opsmith.checks import protocol
from opsmith.cli.app import app
from opsmith.errors import DeclarationError
from opsmith.kernels import language_registry
from opsmith.kernels.language_registry import language_of

COMMAND = """
import typer

app = typer.Typer()

@app.command()
def shout(word: str) -> None:
    \"\"\"Say a word loudly.\"\"\"
    print(word.upper())
"""
LANGUAGE = """
from opsmith.kernels.languages.cpp import Cpp

class Ispc(Cpp):
    name = "ISPC"
    suffixes = (".ispc",)

LANGUAGE = Ispc()
"""
CHECK = """
from opsmith.checks import define_check

@define_check("from-outside", "a check of another package is found")
def from_outside(trial):
    pass
"""


@pytest.fixture
def install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Callable[[str, str, str, str], None]]:
    """Write a package with one entry point, as if it were installed."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(group: str, name: str, value: str, text: str) -> None:
        (tmp_path / "from_outside.py").write_text(text)
        info = tmp_path / "from_outside-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: from-outside\nVersion: 1\n")
        (info / "entry_points.txt").write_text(f"[{group}]\n{name} = {value}\n")
        language_registry.languages.cache_clear()
        protocol._find.cache_clear()

    yield write
    sys.modules.pop("from_outside", None)
    protocol._CHECKS.pop("from-outside", None)
    language_registry.languages.cache_clear()
    protocol._find.cache_clear()


def test_a_command_runs_and_stands_behind_our_own_in_the_help(install, cli):
    install("opsmith.commands", "shout", "from_outside:app", COMMAND)
    assert cli("shout", "hello").stdout == "HELLO\n"
    assert cli("shout", "--nothing").stderr.startswith("error: No such option: --nothing. See ")
    listed = re.findall(r"^│ (\w+) ", cli("--help").stdout, re.MULTILINE)
    assert listed[:3] == ["new", "doctor", "build"] and listed[-2:] == ["view", "shout"]


def test_the_command_of_the_page_counts_kernels(install, cli, tmp_path):
    page = Path(__file__).parents[2] / "docs" / "internals" / "on-top.md"
    (text,) = re.findall(r"^```python\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL)
    install("opsmith.commands", "count", "from_outside:app", text)
    (tmp_path / "counted.py").write_text(
        "import opsmith\nfrom jaxtyping import Float\nfrom torch import Tensor\n\n"
        "@opsmith.op('entry_points::twice')\n"
        "def twice(x: Float[Tensor, 'N']) -> Float[Tensor, 'N']:\n    return 2 * x\n"
    )
    done = cli("count", tmp_path / "counted.py")
    assert (done.code, done.stdout) == (0, "entry_points::twice: 1\n")


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("shout", "1 / 0", "importing from_outside:app raised ZeroDivisionError"),
        ("shout", "app = 3", "from_outside:app has type int, expected Typer"),
        ("check", COMMAND.replace("shout", "check"), "there is another of this name"),
    ],
)
def test_a_command_that_cannot_be_used_is_named_and_stops_no_other(install, cli, name, text, words):
    install("opsmith.commands", name, "from_outside:app", text)
    said = f"the command {name!r} of the package 'from-outside' cannot be used: {words}"
    with pytest.warns(UserWarning, match=re.escape(said)):
        assert cli("--help").code == 0
    group = typer.main.get_command(app)
    assert "opsmith" in group.commands["check"].callback.__module__


def test_a_language_takes_its_sources_and_is_named_where_no_language_does(install):
    with pytest.raises(DeclarationError) as refused:
        language_of(Path("kernel.ispc"), "opsmith", "outside::op")
    assert "ISPC" not in str(refused.value)
    install("opsmith.languages", "ISPC", "from_outside:LANGUAGE", LANGUAGE)
    assert language_of(Path("kernel.ispc"), "opsmith", "outside::op").name == "ISPC"
    assert language_of(Path("kernel.cpp"), "opsmith", "outside::op").name == "C++"
    with pytest.raises(DeclarationError, match=r"C\+\+ \(.*, ISPC \(\.ispc\)$"):
        language_of(Path("kernel.txt"), "opsmith", "outside::op")


def test_a_check_is_among_all_checks(install):
    assert "from-outside" not in {check.name for check in protocol.all_checks()}
    install("opsmith.checks", "from-outside", "from_outside", CHECK)
    assert "from-outside" in {check.name for check in protocol.all_checks()}
