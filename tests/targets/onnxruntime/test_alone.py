"""An artifact in a process that has onnxruntime and NumPy, and neither torch nor opsmith."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import numpy as np
import ort_operators as ops
import pytest
import torch
from torch import Tensor, nn

import opsmith
from opsmith import ArgumentError, ArtifactError
from opsmith.kernels.toolchain.audit import dynamic_symbols, is_torch

pytestmark = pytest.mark.slow  # an artifact with two libraries


class Model(nn.Module):
    def forward(self, x: Tensor, index: Tensor) -> tuple[Tensor, Tensor]:
        out, rows = ops.everything(x, None, index, [x], None, 1, True, [2, 3], (0.5, 0.25))
        return ops.reverse(out), rows


@pytest.fixture(scope="module")
def original(tmp_path_factory) -> Path:
    rows = {0: torch.export.Dim("N", max=64)}
    out = tmp_path_factory.mktemp("exported") / "dist"
    arguments = (torch.randn(4, 3), torch.tensor([3, 2, 1, 0]))
    opsmith.export(
        Model(), arguments, target="onnxruntime", out=out, say=None, dynamic_shapes=(rows, rows)
    )
    return out


@pytest.fixture
def dist(original, tmp_path) -> Path:
    """The artifact somewhere else, alone."""
    return Path(shutil.copytree(original, tmp_path / "moved"))


def run_alone(python: Path, *arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTHON")}
    return subprocess.run(
        [python, *arguments],
        capture_output=True,
        text=True,
        check=False,
        cwd=cwd,
        env={**environment, "PATH": "/usr/bin:/bin"},
    )


INPUTS = {"x": np.arange(15, dtype=np.float32).reshape(5, 3), "index": np.arange(5)[::-1].copy()}


@pytest.mark.slow
def test_the_few_lines_that_the_folder_gives_work_as_they_stand(dist, bare_python, tmp_path):
    readme = (dist / "README.md").read_text()
    (code,) = re.findall(r"```python\n(.*?)```", readme, re.DOTALL)
    np.savez(tmp_path / "inputs.npz", **INPUTS)
    script = "\n".join(
        [
            "import sys, numpy as np",
            "with np.load('inputs.npz') as f: x, index = f['x'], f['index']",
            code.replace("path/to/this/folder", str(dist)),
            "assert not {'torch', 'opsmith'} & set(sys.modules)",
            "np.savez('outputs.npz', *outputs)",
        ]
    )
    done = run_alone(bare_python, "-c", script, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    expected = Model()(torch.from_numpy(INPUTS["x"]), torch.from_numpy(INPUTS["index"]))
    with np.load(tmp_path / "outputs.npz") as outputs:
        for name, value in zip(outputs.files, expected, strict=True):
            np.testing.assert_allclose(outputs[name], value.numpy(), rtol=1e-6)


@pytest.mark.slow
def test_run_py_reads_and_writes_npz(dist, bare_python, tmp_path):
    np.savez(tmp_path / "in.npz", **INPUTS)
    program = str(dist / "run.py")
    done = run_alone(bare_python, program, "in.npz", "out.npz", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    with np.load(tmp_path / "out.npz") as outputs:
        assert outputs.files == ["output_0", "output_1"]
    done = run_alone(bare_python, program, cwd=tmp_path)
    assert "usage: python run.py inputs.npz outputs.npz" in done.stderr
    done = run_alone(bare_python, program, "absent.npz", "out.npz", cwd=tmp_path)
    assert done.returncode == 1
    assert done.stderr == "error: [Errno 2] No such file or directory: 'absent.npz'\n"


def test_a_bad_argument_is_an_error_of_the_session_in_opsmiths_words(dist, bare_python):
    script = """
import numpy as np
from run import load
x = np.zeros((5, 3), np.float32)
try:
    load().run(None, {"x": x, "index": np.array([0, 1, 2, 7, 4])})
except Exception as error:
    print(error)
"""
    done = run_alone(bare_python, "-c", script, cwd=dist)
    assert done.returncode == 0, done.stderr
    assert (
        "ort_test::everything: argument 'index' has value 7 at index 3, expected "
        "0 <= value < 5 (N).\n  bound so far: N=5, M=3" in done.stdout
    )


def library_of(dist: Path) -> Path:
    return dist / "operators" / "ort_test.reverse.so"


def flip_a_byte(path: Path) -> None:
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def test_a_flipped_byte_is_refused_with_and_without_opsmith(dist, bare_python):
    flip_a_byte(library_of(dist))
    with pytest.raises(ArtifactError, match=r"ort_test\.reverse\.so is not the file that was"):
        opsmith.load(dist)
    done = run_alone(bare_python, "-c", "from run import load; load()", cwd=dist)
    assert done.returncode == 1
    assert "ort_test.reverse.so is not the file that was exported, and is not" in done.stderr


def test_a_missing_library_is_named(dist, bare_python):
    library_of(dist).unlink()
    with pytest.raises(ArtifactError, match=r"ort_test\.reverse\.so is missing"):
        opsmith.load(dist)
    done = run_alone(bare_python, "-c", "from run import load; load()", cwd=dist)
    assert "ort_test.reverse.so is missing" in done.stderr


def change(dist: Path, **details: object) -> None:
    path = dist / "manifest.json"
    manifest = json.loads(path.read_text())
    manifest["details"].update(details)
    path.write_text(json.dumps(manifest))


def test_a_library_for_another_machine_is_refused(dist, bare_python):
    change(dist, platform="Linux-m68k")
    with pytest.raises(ArtifactError, match="has operator libraries compiled for Linux-m68k, this"):
        opsmith.load(dist)
    done = run_alone(bare_python, "-c", "from run import load; load()", cwd=dist)
    assert "compiled for Linux-m68k" in done.stderr


def test_a_library_for_a_better_processor_is_refused(dist, bare_python):
    change(dist, processor=["sse2", "avx4096"])
    with pytest.raises(ArtifactError, match="compiled for a processor with avx4096, which this"):
        opsmith.load(dist)
    done = run_alone(bare_python, "-c", "from run import load; load()", cwd=dist)
    assert "compiled for a processor with avx4096" in done.stderr


def test_the_libraries_need_no_torch(dist):
    for path in (dist / "operators").iterdir():
        undefined = [s.name for s in dynamic_symbols(path) if not s.defined]
        assert undefined and not [name for name in undefined if is_torch(name)]


def test_what_the_export_did_not_allow_is_refused_before_the_runtime(dist):
    model = opsmith.load(dist)
    index = torch.arange(4)
    with pytest.raises(ArgumentError, match=r"dimension 0 \(N\) is 65, the export allows"):
        model(torch.ones(65, 3), torch.arange(65))
    with pytest.raises(ArgumentError, match=r"dimension 1 is 4, expected 3: the model was"):
        model(torch.ones(4, 4), index)
    with pytest.raises(ArgumentError, match="has dtype float64, expected float32"):
        model(torch.ones(4, 3).double(), index)
    with pytest.raises(
        ArgumentError, match=r"(?s)dimension 0 \(N\) is 4, expected 5.*\(N by 'x'\)"
    ):
        model(torch.ones(5, 3), index)
    with pytest.raises(ArgumentError, match="has 1 dimensions, expected 2"):
        model(torch.ones(5), index)
    with pytest.raises(ArgumentError, match="not nested as the exported model's"):
        model(torch.ones(5, 3))
    with pytest.raises(ArgumentError, match=r"takes 2 inputs \(x, index\), got 1"):
        model.run([torch.ones(5, 3)])


def test_arrays_and_strided_tensors_are_taken(dist):
    model = opsmith.load(dist)
    x = torch.randn(3, 6).T[:5]
    index = torch.arange(5)
    expected = Model()(x, index)
    for found in (model(x, index), model.run([x.numpy(), index.numpy()])):
        torch.testing.assert_close(tuple(found), expected)


def test_two_loads_are_two_sessions_of_one_library(dist):
    first, second = opsmith.load(dist), opsmith.load(dist)
    x, index = torch.randn(5, 3), torch.arange(5)
    del first
    torch.testing.assert_close(second(x, index), Model()(x, index))
