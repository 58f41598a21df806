"""The model that changes nothing does what its README says, by its one command."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLE = Path(__file__).parents[3] / "examples" / "identity_model"


@pytest.mark.long
def test_the_identity_model_is_the_identity_everywhere(tmp_path):
    done = subprocess.run(
        [sys.executable, EXAMPLE / "main.py", "--out", tmp_path / "artifacts"],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert "torch.ops.my_ops.identity_conv_op.default(conv2d)" in done.stdout
    assert "my_ops::identity_conv_op: library, 1 call (called directly)" in done.stdout
    lines = [line.split() for line in done.stdout.splitlines()]
    assert "NOT EQUAL" not in done.stdout
    for where in (["eager"], ["after", "torch.export"], ["package,", "from", "Python"],
                  ["package,", "from", "C++"]):  # fmt: skip
        assert [*where, "equal,", "bit", "for", "bit"] in lines
    assert (tmp_path / "artifacts" / "identity_model_cpu" / "manifest.json").is_file()
