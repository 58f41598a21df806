"""`opsmith build --compile-commands`: an editor compiles a kernel as opsmith does."""

import itertools
import json
import subprocess
import sys
from pathlib import Path

import pytest

DECLARATION = """
import opsmith
from jaxtyping import Float
from torch import Tensor

@opsmith.op("editor::twice")
def twice(x: Float[Tensor, "N C"]) -> Float[Tensor, "N C"]:
    return x * 2

twice.register_kernel("cpu", source="twice.cpp")
twice.register_kernel("cuda", source="twice.cu")
"""
KERNEL = """#include <opsmith/kernel.h>
#include "twice.h"

template <typename T>
void twice(const opsmith::Context& ctx, const editor::twice_args<T>& a) {
  for (int64_t i = 0; i < a.N * a.C; ++i) a.out[i] = 2 * a.x[i];
}
OPSMITH_KERNEL(editor, twice, cpu, float)
"""


#: No two tests declare an operator of one name.
_NUMBERS = itertools.count()


@pytest.fixture
def folder(tmp_path):
    namespace = f"editor_{next(_NUMBERS)}"
    for suffix, text in ((".py", DECLARATION), (".cpp", KERNEL), (".cu", KERNEL)):
        (tmp_path / f"twice{suffix}").write_text(text.replace("editor", namespace))
    return tmp_path


def commands(folder) -> list[dict]:
    return json.loads((folder / "compile_commands.json").read_text())


def test_the_commands_of_others_stay_and_cuda_has_none(folder, cli):
    other = {"directory": str(folder), "file": "main.cpp", "command": "c++ -c main.cpp"}
    (folder / "compile_commands.json").write_text(json.dumps([other]))
    for _ in range(2):
        outcome = cli("build", folder / "twice.py", "--compile-commands")
        assert outcome.code == 0
        assert outcome.stdout == f"{folder / 'compile_commands.json'}\n"
        found = commands(folder)
        assert found[0] == other
        assert [entry["file"] for entry in found[1:]] == [str(folder / "twice.cpp")]


def test_an_operator_without_a_kernel_in_cpp_is_refused(tmp_path, cli):
    text = DECLARATION.partition("twice.register_kernel")[0].replace("editor", "editor_none")
    (tmp_path / "none.py").write_text(text)
    outcome = cli("build", tmp_path / "none.py", "--compile-commands")
    assert outcome.code == 1
    assert outcome.stderr == "error: no operator of these files has a kernel in C++\n"


@pytest.mark.slow
def test_the_command_compiles_and_clangd_draws_no_red_line(folder, cli):
    assert cli("build", folder / "twice.py", "--compile-commands").code == 0
    (entry,) = commands(folder)
    command = [*entry["arguments"], "-fsyntax-only"]
    subprocess.run(command, check=True, cwd=entry["directory"])

    clangd = Path(sys.executable).with_name("clangd")
    look = [clangd, f"--check={folder / 'twice.cpp'}", "--log=error"]
    assert subprocess.run(look, check=False, capture_output=True).returncode == 0
    # Without the commands, the generated header is missing: the test would see it.
    (folder / "compile_commands.json").unlink()
    assert subprocess.run(look, check=False, capture_output=True).returncode != 0


def test_a_kernel_for_a_device_without_its_compiler_is_passed_over(folder, cli, monkeypatch):
    monkeypatch.delenv("ASCEND_HOME_PATH", raising=False)
    declaration = folder / "twice.py"
    text = declaration.read_text() + 'twice.register_kernel("npu", source="ascend.cpp")\n'
    declaration.write_text(text)
    (folder / "ascend.cpp").write_text("// Ascend C\n")
    outcome = cli("build", declaration, "--compile-commands")
    assert outcome.code == 0, outcome.stderr
    assert [entry["file"] for entry in commands(folder)] == [str(folder / "twice.cpp")]
