"""Programs that are built with CMake, and found again."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from opsmith import BuildError
from opsmith.kernels.toolchain import program as module
from opsmith.kernels.toolchain.program import build_program

CMAKE = """
cmake_minimum_required(VERSION 3.26)
project(answer CXX)
add_executable(answer main.cpp)
target_compile_definitions(answer PRIVATE ANSWER=${ANSWER})
"""


@pytest.fixture
def sources(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("OPSMITH_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "sources"
    folder.mkdir()
    (folder / "CMakeLists.txt").write_text(CMAKE)
    (folder / "main.cpp").write_text("int main() { return ANSWER; }\n")
    return folder


def run(program: Path) -> int:
    return subprocess.run([program], check=False).returncode


@pytest.mark.slow
def test_a_program_is_built_once_and_again_where_it_is_not_what_was_built(
    sources: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = []
    real = module._build
    monkeypatch.setattr(module, "_build", lambda *args: built.append(args[0]) or real(*args))
    program = build_program("answer", sources, {"ANSWER": "42"})
    assert run(program) == 42
    assert build_program("answer", sources, {"ANSWER": "42"}) == program
    assert len(built) == 1

    program.write_bytes(program.read_bytes()[:100])
    assert run(build_program("answer", sources, {"ANSWER": "42"})) == 42
    assert len(built) == 2

    assert run(build_program("answer", sources, {"ANSWER": "7"})) == 7
    (sources / "main.cpp").write_text("int main() { return ANSWER + 1; }\n")
    assert run(build_program("answer", sources, {"ANSWER": "7"})) == 8
    assert len(built) == 4


def test_a_program_is_built_again_when_a_header_changes_that_it_shares_with_libraries(
    sources: Path, tmp_path: Path
) -> None:
    with (sources / "CMakeLists.txt").open("a") as file:
        file.write("target_include_directories(answer PRIVATE ${OPSMITH_INCLUDES})\n")
    (sources / "main.cpp").write_text("#include <shared.h>\nint main() { return shared; }\n")
    include = tmp_path / "include"
    include.mkdir()
    for value in (4, 5):
        (include / "shared.h").write_text(f"inline constexpr int shared = {value};\n")
        assert run(build_program("answer", sources, {}, include_dirs=[include])) == value


def test_a_program_that_does_not_compile_says_so_in_the_compilers_words(sources: Path) -> None:
    (sources / "main.cpp").write_text("int main() { return nothing; }\n")
    with pytest.raises(BuildError, match=r"answer: .*sources did not compile:[\s\S]*'nothing' was"):
        build_program("answer", sources, {"ANSWER": "1"})
    (sources / "main.cpp").write_text("int main() { return 3; }\n")
    assert run(build_program("answer", sources, {"ANSWER": "1"})) == 3
