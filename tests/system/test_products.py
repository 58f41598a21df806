"""The core works without each product, and says in one sentence which product is missing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from opsmith.checks import harness
from opsmith.checks.cases.failure import Inapplicable

REPOSITORY = Path(__file__).parents[2]
SCALE = """
import opsmith
from jaxtyping import Float
from torch import Tensor

@opsmith.op("products::scale")
def scale(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    return 2 * x
"""
IN_CUDA = SCALE + 'scale.register_kernel("cuda", source="scale.cu")\n'
MODEL = """
import torch
from scale import scale

class Model(torch.nn.Module):
    def forward(self, x):
        return scale(x)

def example():
    return Model(), (torch.ones(3),)
"""
#: Declares, calls and compiles in a child that has one installation each, and runs a command.
EACH = """
import gc, json, os, sys, traceback
import torch, torch._dynamo
from typer.testing import CliRunner

gc.freeze()  # no child looks for garbage among what is imported

def said_in(folder, command):
    sys.path.insert(0, folder)
    os.chdir(folder)
    if not os.path.isdir("emulators"):
        sys.modules["emulators"] = None  # it would be found in the repository
    import opsmith
    assert opsmith.__file__.startswith(folder), opsmith.__file__
    from scale import scale
    x = torch.arange(3.0)
    assert scale(x).tolist() == [0, 2, 4]
    compiled = torch.compile(lambda x: scale(x) + 1, backend="eager", fullgraph=True)
    assert compiled(x).tolist() == [1, 3, 5]
    from opsmith.cli.app import app
    for whole in (["--help"], ["show", "scale.py"], ["export", "--list"]):
        done = CliRunner().invoke(app, whole)
        assert done.exit_code == 0, (whole, done.output)
    if isinstance(command, str):
        try:
            eval(command)
        except opsmith.OpsmithError as error:
            return f"{type(error).__name__}: {error}"
    done = CliRunner().invoke(app, command)
    return f"{done.exit_code}: {done.stderr}"

for folder, command in json.loads(sys.stdin.read()).items():
    if os.fork() == 0:
        try:
            text = said_in(folder, command)
        except BaseException:
            text = traceback.format_exc()
        with open(os.path.join(folder, "said"), "w") as file:
            file.write(text)
        os._exit(0)
    os.wait()
"""
ABSENT = "needs opsmith.{}, which is not installed. Get it: pip install opsmith"
EXPORT = ["export", "model.py:example", "--target"]
#: By product: its files, what asks for it (a command line, or an expression), and what is said.
CASES = {
    "checks": (["checks"], ["check", "scale.py"], "1: error: opsmith check " + ABSENT),
    "judge": (
        ["judge"],
        ["judge", "scale.py", "--candidate", "scale.py"],
        "1: error: opsmith judge " + ABSENT,
    ),
    "bench": (["bench"], ["bench", "scale.py"], "1: error: opsmith bench " + ABSENT),
    "drafting": (["drafting"], ["adopt", "aten::sin"], "1: error: opsmith adopt " + ABSENT),
    "wheels": (["wheels"], ["wheel", "scale.py"], "1: error: opsmith wheel " + ABSENT),
    "targets.onnx": (
        ["targets/onnx"],
        [*EXPORT, "onnxruntime"],
        "1: error: the target 'onnxruntime' " + ABSENT,
    ),
    "targets.onnxruntime": (
        ["targets/onnxruntime"],
        [*EXPORT, "onnxruntime"],
        "2: error: there is no target 'onnxruntime'",
    ),
    "targets.jax": (["targets/jax"], [*EXPORT, "jax"], "2: error: there is no target 'jax'"),
    "targets.python": (
        ["targets/python"],
        [*EXPORT, "python"],
        "2: error: there is no target 'python'",
    ),
    "targets.tvm_ffi": (
        ["targets/tvm_ffi"],
        [*EXPORT, "tvm_ffi"],
        "2: error: there is no target 'tvm_ffi'",
    ),
    "targets.op_plugin": (
        ["targets/op_plugin"],
        [*EXPORT, "op_plugin"],
        "2: error: there is no target 'op_plugin'",
    ),
    "targets.aotinductor": (
        ["targets/aotinductor"],
        [*EXPORT, "aotinductor"],
        "2: error: there is no target 'aotinductor'",
    ),
    "kernels.languages.emulated_cuda": (
        ["kernels/languages/emulated_cuda"],
        "opsmith.emulate('cuda').__enter__()",
        "MissingDependencyError: products::scale (cuda) " + ABSENT,
    ),
    "emulators": (
        ["../emulators"],
        "opsmith.emulate('cuda').__enter__()",
        "MissingDependencyError: products::scale (cuda) needs emulators.cuda, which is not "
        "installed. Get it: pip install opsmith",
    ),
}


def install_without(folder: Path, products: list[str]) -> None:
    """Lay links to the two packages without some products: to whole folders where none is inside.

    So what Python compiled of them is there too, and no process compiles it again.
    """
    left_out = [Path(os.path.normpath(REPOSITORY / "opsmith" / name)) for name in products]
    assert all(path.exists() for path in left_out)

    def lay(path: Path) -> None:
        place = folder / path.relative_to(REPOSITORY)
        if not any(gone.is_relative_to(path) for gone in left_out):
            place.symlink_to(path)
        elif path not in left_out:
            place.mkdir()
            for inside in path.iterdir():
                lay(inside)

    folder.mkdir(exist_ok=True)
    for package in ("opsmith", "emulators"):
        lay(REPOSITORY / package)


@pytest.mark.slow
def test_without_a_product_all_else_works_and_one_sentence_says_what_is_missing(tmp_path):
    asked = {}
    for name, (files, command, _) in CASES.items():
        folder = tmp_path / name
        install_without(folder, files)
        in_cuda = isinstance(command, str) and "emulate" in command
        (folder / "scale.py").write_text(IN_CUDA if in_cuda else SCALE)
        (folder / "scale.cu").write_text("")
        (folder / "model.py").write_text(MODEL)
        asked[str(folder)] = command
    done = subprocess.run(
        [sys.executable, "-c", EACH],
        input=json.dumps(asked),
        capture_output=True,
        text=True,
        env={**os.environ, "TERMINAL_WIDTH": "200"},
    )
    assert done.returncode == 0, done.stderr
    said = {name: (tmp_path / name / "said").read_text() for name in CASES}
    for name, (_, _, sentence) in CASES.items():
        assert said[name].startswith(sentence.format(name)), f"{name}: {said[name]}"


@pytest.mark.slow
def test_without_the_emulators_a_check_runs_and_no_row_of_theirs_is_green(tmp_path):
    install_without(tmp_path, ["../emulators"])
    # It would be found in the repository.
    (tmp_path / "emulators.py").write_text("raise ModuleNotFoundError(name='emulators')\n")
    (tmp_path / "scale.py").write_text(IN_CUDA)
    (tmp_path / "scale.cu").write_text("#include <opsmith/cuda.h>\n")
    checks = ["reference", "cuda-on-cpu", "exact-cuda-on-cpu"]
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "opsmith",
            "check",
            "scale.py",
            "--json",
            "--check",
            ",".join(checks),
        ],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(tmp_path)},
        capture_output=True,
        text=True,
    )
    rows = {(row["kernel"], row["check"]): row for row in json.loads(done.stdout)["rows"]}
    assert rows["reference", "reference"]["status"] == "passed"
    for check in checks[1:]:
        row = rows["cuda", check]
        assert (row["status"], row["message"]) == (
            "not applicable",
            "products::scale (cuda), without a GPU, needs emulators, which is not installed. Get "
            "it: pip install opsmith",
        )
    assert done.returncode == 5, "no kernel was looked at"


def test_without_the_emulation_no_kernel_is_called_alone(monkeypatch):
    product = "opsmith.kernels.languages.emulated_cuda"
    monkeypatch.setitem(sys.modules, product, None)
    with pytest.raises(Inapplicable) as raised:
        harness.build(SimpleNamespace())
    assert str(raised.value) == (
        f"calling a kernel alone needs {product}, which is not installed. Get it: pip install "
        "opsmith"
    )


#: What only building and the command line need; the extra `build` brings it.
TOOLS = ("cmake", "jinja2", "ninja", "rich", "typer")
SERVED = """
import torch
from served import scale

x = torch.arange(3.0)
assert scale(x).tolist() == [0, 2, 4]
assert scale.kernels["cpu"].calls == 1
compiled = torch.compile(lambda x: scale(x) + 1, fullgraph=True)
assert compiled(x).tolist() == [1, 3, 5]
assert scale.kernels["cpu"].calls == 2
x.requires_grad_()
scale(x).sum().backward()
assert x.grad.tolist() == [2, 2, 2]
print(sorted(name for name in sys.modules if name.partition(".")[0] in TOOLS and sys.modules[name]))
"""
IN_CPP = """
#include <opsmith/kernel.h>
#include "scale.h"

template <typename T>
void scale(const opsmith::Context&, const served::scale_args<T>& a) {
  for (int64_t i = 0; i < a.N; ++i) a.out[i] = 2 * a.x[i];
}
OPSMITH_KERNEL(served, scale, cpu, float)
"""


def run_in(
    folder: Path, script: str, tools: bool, **environment: str
) -> subprocess.CompletedProcess[str]:
    refused = "" if tools else "sys.modules.update(dict.fromkeys(TOOLS))"
    return subprocess.run(
        [sys.executable, "-c", f"import sys; TOOLS = {TOOLS}; {refused}\n{script}"],
        capture_output=True,
        text=True,
        cwd=folder,
        env={**os.environ, **environment},
    )


@pytest.mark.slow
def test_an_operator_that_is_built_is_served_without_the_tools_that_build(tmp_path):
    text = SCALE.replace('"products::scale"', '"served::scale", autograd="reference"')
    (tmp_path / "served.py").write_text(text + 'scale.register_kernel("cpu", source="scale.cpp")\n')
    (tmp_path / "scale.cpp").write_text(IN_CPP)
    empty = str(tmp_path / "cache")
    done = run_in(tmp_path, "from served import scale; scale.build()", False, OPSMITH_CACHE=empty)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "opsmith.errors.MissingDependencyError: generating C++ needs jinja2, which is not "
        "installed. Get it: pip install 'opsmith[build]'"
    )
    built = run_in(tmp_path, SERVED, True)
    assert built.returncode == 0, built.stderr
    done = run_in(tmp_path, SERVED, False)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr


@pytest.mark.parametrize("tool", ["rich", "typer"])
def test_the_command_line_names_the_extra_that_brings_what_it_lacks(tool):
    script = f"import sys; sys.modules[{tool!r}] = None; from opsmith.cli import main; main()"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        f"error: the command opsmith needs {tool}, which is not installed. Get it: "
        "pip install 'opsmith[build]'\n"
    )
