"""The gallery as one wheel for every Linux, called where there is PyTorch and nothing else."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest
from wheel_samples import WITHOUT, install, run

from opsmith.wheels import build_wheel

if importlib.util.find_spec("ziglang") is None:
    if os.environ.get("OPSMITH_REQUIRE_ZIG"):
        raise ModuleNotFoundError("OPSMITH_REQUIRE_ZIG is set, and ziglang is not installed")
    pytest.skip("no Zig here; make wheels installs it and runs these", allow_module_level=True)

GALLERY = Path(__file__).parents[2] / "gallery"
MODULES = "bev_pool_v2 deform_conv2d identity_conv ms_deform_attn my_add numpy_sin".split()

# One case of each operator; a kernel that did not run would be the reference compared with itself.
CALL = """
import importlib, sys
import torch

simple = {
    "tutorial::identity_conv": lambda: dict(x=torch.randn(5, 3)),
    "tutorial::my_add": lambda: dict(a=torch.randn(5, 3), b=torch.randn(5, 3)),
}
for module in sys.argv[1:]:
    importlib.import_module(f"gallery.{module}.{module}")
from gallery._opsmith.operators.core.registry import all_operators

from gallery.numpy_sin.numpy_sin import numpy_sin  # which is Python alone

x, out = torch.randn(4), torch.zeros(4)
numpy_sin(x, out)
torch.testing.assert_close(out, x.sin())

for operator in all_operators():
    if operator is numpy_sin:
        continue
    made = simple.get(operator.name)
    given = made() if made else next(iter(operator.cases[0](torch.float32, 0)))
    kernel = operator.kernels["cpu"]
    torch.testing.assert_close(
        operator(**given), operator.reference(**given), rtol=1e-4, atol=1e-4
    )
    assert kernel.calls == 1, operator
    print(operator.name)
"""


def test_every_operator_runs_as_it_comes_from_the_wheel(tmp_path: Path) -> None:
    wheel = build_wheel(GALLERY, tmp_path, platform="x86_64", levels=["x86-64-v2"])
    assert wheel.name == "opsmith_gallery-0.1.0-py3-none-manylinux_2_28_x86_64.whl"
    # Three levels stay below 5 MB.
    assert wheel.stat().st_size < 5e6 / 3
    install(wheel, tmp_path / "site")
    home = tmp_path / "home"
    home.mkdir(mode=0o500)
    # The gallery's own folder is not far.
    arguments = f"sys.path.remove('')\nsys.argv[1:] = {MODULES!r}\n"
    done = run(
        tmp_path / "site",
        WITHOUT + arguments + CALL,
        PATH="",
        HOME=str(home),
        OPSMITH_CACHE=str(home / "cache"),
    )
    assert done.returncode == 0, done.stderr
    assert len(done.stdout.split()) == 8
    assert not list(home.iterdir())
