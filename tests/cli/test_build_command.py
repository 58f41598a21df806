import shutil
import sys
from pathlib import Path

import pytest
import torch

DECLARATION = """
import opsmith
from jaxtyping import Float
from torch import Tensor

@opsmith.op("cli_build::double_it")
def double_it(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    return x * 2

double_it.register_kernel("cpu", source="double_it.cpp")
"""

KERNEL = """
#include <opsmith/kernel.h>
#include "double_it.h"

template <typename T>
void double_it(const opsmith::Context&, const cli_build::double_it_args<T>& a) {
  for (int64_t i = 0; i < a.N; ++i) a.out[i] = a.x[i] * 2;
}
OPSMITH_KERNEL(cli_build, double_it, cpu, float)
"""


@pytest.fixture
def operator_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A fresh working directory with an operator and its kernel, which is in no cache."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path.copy())
    # A test's file is loaded as a module of its own, whatever file of that name was loaded before.
    monkeypatch.delitem(sys.modules, "double_it", raising=False)
    file = tmp_path / "double_it.py"
    file.write_text(DECLARATION)
    (tmp_path / "double_it.cpp").write_text(KERNEL)
    return file


@pytest.mark.slow
def test_it_says_where_the_library_is(cli, operator_file):
    outcome = cli("build", operator_file)
    assert outcome.code == 0, outcome.stderr
    name, device, seconds, unit, library = outcome.stdout.split()
    assert (name, device, unit) == ("cli_build::double_it", "cpu", "s")
    assert float(seconds) > 0
    assert Path(library).is_file()


@pytest.mark.slow
def test_a_compiler_error_leads_to_the_line(cli, operator_file):
    source = operator_file.with_suffix(".cpp")
    source.write_text(KERNEL.replace("a.x[i] * 2;", "a.x[i] * two;"))
    outcome = cli("build", operator_file)
    assert outcome.code == 1
    line = 1 + source.read_text().splitlines().index(
        "  for (int64_t i = 0; i < a.N; ++i) a.out[i] = a.x[i] * two;"
    )
    assert f"{source}:{line}:" in outcome.stderr
    assert "'two' was not declared" in outcome.stderr
    assert outcome.stdout == ""


def test_no_compiler_is_said_with_the_way_to_get_one(cli, operator_file, monkeypatch):
    monkeypatch.delenv("CXX", raising=False)
    monkeypatch.setenv("PATH", str(operator_file.parent / "empty"))
    outcome = cli("build", operator_file)
    assert outcome.code == 1
    assert outcome.stderr.startswith("error: cli_build::double_it")
    assert "needs a C++ compiler, and none is on the PATH" in outcome.stderr
    assert "apt install g++" in outcome.stderr


def test_python_kernels_need_no_build(cli, operator_file):
    operator_file.write_text(DECLARATION.replace("double_it.register", "# double_it.register"))
    outcome = cli("build", operator_file)
    assert outcome.code == 0
    assert outcome.stderr == "cli_build::double_it: nothing to build, its kernels are Python\n"


@pytest.mark.long  # docs/test_readme.py checks what is written, and built
def test_what_opsmith_new_writes_builds(cli, operator_file):
    assert cli("new", "cli_build::made").code == 0
    outcome = cli("build", "made/made.py")
    assert outcome.code == 0, outcome.stderr
    shutil.rmtree(operator_file.parent / "made")


def test_an_operator_whose_every_kernel_was_left_out_is_not_built(cli, operator_file, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setenv("PATH", str(operator_file.parent / "empty"))
    operator_file.with_suffix(".cu").write_text(KERNEL.replace(" cpu,", " cuda,"))
    operator_file.write_text(
        DECLARATION.replace('"cpu", source="double_it.cpp"', '"cuda", source="double_it.cu"')
    )
    outcome = cli("build", operator_file)
    assert outcome.code == 5
    assert "cli_build::double_it  cuda  left out, " in outcome.stderr
    assert outcome.stderr.endswith(
        "cli_build::double_it: nothing was built, every kernel was left out\n"
    )
