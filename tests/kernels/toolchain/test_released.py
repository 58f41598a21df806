"""Take what a release brings built where the same would be compiled here, and only there."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from opsmith.kernels.toolchain import program, recipe, released
from opsmith.kernels.toolchain.compilers import find_compiler
from opsmith.kernels.toolchain.program import build_program
from opsmith.kernels.toolchain.recipe import Recipe

SAYS_USAGE = "#!/bin/sh\necho brought\nexit 2\n"


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OPSMITH_CACHE", str(tmp_path / "cache"))
    for name in ("CXXFLAGS", "LDFLAGS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(released, "FOLDER", tmp_path / "released")
    folder = tmp_path / "sources"
    folder.mkdir()
    (folder / "main.cpp").write_text("int main() { return 2; }\n")
    return folder


@pytest.fixture
def build(sources: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Builds the program, and returns what it says: whether a release brought it."""

    def compile_(name: str, sources: Path, work: Path, *_: object) -> None:
        (work / name).write_text("#!/bin/sh\necho compiled\n")
        (work / name).chmod(0o755)

    monkeypatch.setattr(program, "_build", compile_)

    def make(**settings: str) -> str:
        done = subprocess.run([build_program("answer", sources, settings)], stdout=subprocess.PIPE)
        return done.stdout.decode().strip()

    return make


def bring(text: str, name: str, sources: Path, facts: object) -> None:
    path = released.FOLDER / released.place(name, [sources], facts)
    path.parent.mkdir(parents=True)
    path.write_text(text)
    path.chmod(0o755)


def test_a_program_of_a_release_is_not_compiled(sources: Path, build: Callable[..., str]) -> None:
    bring(SAYS_USAGE, "answer", sources, {"ANSWER": "42"})
    assert build(ANSWER="42") == "brought"
    shutil.rmtree(released.FOLDER)
    assert build(ANSWER="42") == "compiled"


@pytest.mark.parametrize(
    "other", ["settings", "source", "header", "compiler's options", "linker's options", "version"]
)
def test_a_program_is_compiled_where_a_release_has_another(
    sources: Path, build: Callable[..., str], other: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    bring(SAYS_USAGE, "answer", sources, {"ANSWER": "42"})
    settings = {"ANSWER": "42"}
    if other == "settings":
        settings = {"ANSWER": "43"}
    elif other == "source":
        (sources / "main.cpp").write_text("int main() { return 3; }\n")
    elif other == "header":
        (sources / "more.h").write_text("#define MORE\n")
    elif other == "version":
        monkeypatch.setattr(released, "version", lambda: "99")
    else:
        name = "CXXFLAGS" if "compiler" in other else "LDFLAGS"
        monkeypatch.setenv(name, "-stdlib=libc++")
    assert build(**settings) == "compiled"


@pytest.mark.parametrize("text", ["#!/bin/sh\nexit 1\n", "no program", "#!/nowhere\n"])
def test_a_program_that_does_not_start_here_is_compiled(
    sources: Path, build: Callable[..., str], text: str
) -> None:
    bring(text, "answer", sources, {})
    assert build() == "compiled"


@pytest.mark.parametrize("loads", [True, False])
def test_a_library_of_a_release_is_taken_if_it_loads(
    sources: Path, loads: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    def compiled(recipe: Recipe, folder: Path) -> None:
        raise AssertionError("it was to be compiled")

    monkeypatch.setattr(recipe, "_build", compiled)
    asked: list[Path] = []
    find = released.find

    def finding(name: str, folders: list[Path], facts: object, compiler: object) -> Path | None:
        asked.append(released.FOLDER / released.place(name, folders, facts))
        if not asked[0].exists():
            asked[0].parent.mkdir(parents=True)
            text = (
                "int answer() { return 42; }" if loads else "int f(); int answer() { return f(); }"
            )
            command = [find_compiler("").path, "-shared", "-fPIC", "-x", "c", "-", "-o", asked[0]]
            subprocess.run(command, input=text, text=True, check=True)
        return find(name, folders, facts, compiler)

    monkeypatch.setattr(released, "find", finding)
    own = Recipe("answer", sources=[sources / "main.cpp"], torch="none", once_for="")
    if not loads:
        with pytest.raises(AssertionError, match="it was to be compiled"):
            own.build()
        return
    assert own.build() == asked[0]
    (sources / "more.h").write_text("#define MORE\n")
    (sources / "main.cpp").write_text('#include "more.h"\n')
    with pytest.raises(AssertionError, match="it was to be compiled"):
        own.build()
    users = Recipe("other", sources=[sources / "main.cpp"], torch="none")
    with pytest.raises(AssertionError, match="it was to be compiled"):
        users.build()
    assert len(asked) == 2, "a user's library is in no release"
