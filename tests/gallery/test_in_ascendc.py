"""Check the gallery's kernels in Ascend C as they are, emulated on the CPU."""

import subprocess
import sys
from pathlib import Path

import pytest

GALLERY = Path(__file__).parents[2] / "gallery"


# In a process of its own: kernels for NPUs would be part of the operators that other tests check.
@pytest.mark.slow(cases=2)
@pytest.mark.parametrize(
    "operator",
    [
        "rms_norm/rms_norm.py::rms_norm",
        "add_custom/add_custom.py::add_custom",
        "bev_pool_v2/in_ascendc.py::bev_pool_v2",
        "bev_pool_v2/in_ascendc.py::bev_pool_v2_backward",
    ],
)
def test_the_kernel_is_right_in_any_order_of_cores(operator):
    command = [sys.executable, "-m", "opsmith", "check", str(GALLERY / operator)]
    options = ["--check", "ascendc-on-cpu", "--examples", "3"]
    ran = subprocess.run([*command, *options], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "✓  ascendc-on-cpu" in ran.stdout
