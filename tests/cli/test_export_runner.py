"""`opsmith export --runner`, and what running such an artifact says of a failure."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import torch

MODEL = """
import torch

class Twice(torch.nn.Module):
    def forward(self, x, rows):
        return 2 * x[rows]

def example():
    return Twice(), (torch.arange(3.0), torch.tensor([2, 0]))
"""


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runner_model.py").write_text(MODEL)
    x = torch.full((3,), 4.0)
    torch.save((x, torch.tensor([1, 1])), "in.pt")
    torch.save((x, torch.tensor([1, 7])), "out_of_range.pt")
    torch.save((x, x, x), "three.pt")
    return "runner_model.py:example"


@pytest.mark.slow
def test_the_program_is_built_into_the_artifact(cli, source):
    done = cli("export", source, "--target", "aotinductor", "--runner")
    assert done.code == 0, done.stderr
    program = ["dist/runner/opsmith-run", "dist"]
    subprocess.run([*program, "in.pt", "--output", "out.pt"], env={}, check=True)
    assert torch.load("out.pt")[0].tolist() == [8, 8]

    # What fails while running is said without a traceback.
    done = cli("run", "dist", "out_of_range.pt")
    assert done.code == 1
    assert done.stderr.startswith("error: dist: ")
    assert "index out of bounds" in done.stderr
    failed = subprocess.run([*program, "out_of_range.pt"], env={}, capture_output=True, text=True)
    assert failed.returncode == 7
    assert "index out of bounds" in failed.stderr

    done = cli("run", "dist", "three.pt")
    assert done.code == 1
    assert "three.pt holds 3 tensors; the model takes x: float32 (3,); rows: int64" in done.stderr


def test_a_target_without_a_program_says_so(cli, source):
    done = cli("export", source, "--target", "onnxruntime", "--runner")
    assert done.code != 0
    assert "target 'onnxruntime' has no option 'runner'" in done.stderr
