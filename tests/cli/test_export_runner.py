"""`opsmith export --runner`."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
import torch

MODEL = """
import torch

class Twice(torch.nn.Module):
    def forward(self, x):
        return 2 * x

def example():
    return Twice(), (torch.ones(3),)
"""


@pytest.fixture
def source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "runner_model.py").write_text(MODEL)
    return "runner_model.py:example"


def test_the_program_is_built_into_the_artifact(cli, source, tmp_path):
    done = cli("export", source, "--target", "aotinductor", "--runner")
    assert done.code == 0, done.stderr
    torch.save(torch.full((3,), 4.0), tmp_path / "in.pt")
    program = tmp_path / "dist" / "runner" / "opsmith-run"
    subprocess.run([program, "dist", "in.pt", "--output", "out.pt"], env={}, check=True)
    (result,) = torch.load(tmp_path / "out.pt")
    assert result.tolist() == [8, 8, 8]


def test_a_target_without_a_program_says_so(cli, source):
    done = cli("export", source, "--target", "onnxruntime", "--runner")
    assert done.code != 0
    assert "target 'onnxruntime' has no option 'runner'" in done.stderr
