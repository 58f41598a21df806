"""A wheel with a kernel in a tvm-ffi module runs without opsmith and without tvm-ffi."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
import tvm_ffi.cpp
from wheel_samples import LEVEL, WITHOUT, contents, install, run

from opsmith.wheels import build_wheel

SOURCE = Path(__file__).parents[1] / "kernels" / "sources" / "tvm_ffi_module.cpp"
DECLARED = """
import opsmith
from jaxtyping import Float32
from torch import Tensor


@opsmith.op("tvm_wheel::multiply_add")
def multiply_add(x: Float32[Tensor, "N"], y: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
    return x * y + x


multiply_add.register_kernel("cpu", tvm_ffi="module.so")
"""
USE = """
sys.modules["tvm_ffi"] = None
import torch
from with_module import multiply_add

x = torch.ones(3)
assert torch.equal(multiply_add(x, x), 2 * x)
assert multiply_add.kernels["cpu"].calls == 1
lines = open("/proc/self/maps").read().splitlines()
files = {line.split()[-1] for line in lines}
print(*sorted(file for file in files if file.endswith(("libtvm_ffi.so", "module.so"))))
"""


@pytest.mark.long
def test_it_carries_the_module_and_the_library_of_tvm_ffi(tmp_path: Path) -> None:
    package = tmp_path / "project" / "with_module"
    package.mkdir(parents=True)
    (package.parent / "pyproject.toml").write_text(
        '[project]\nname = "with-module"\nversion = "1.0"\n'
    )
    (package / "__init__.py").write_text(DECLARED)
    text = SOURCE.read_text()
    built = tvm_ffi.cpp.build_inline("shipped", cpp_sources=text, functions="multiply_add")
    shutil.copyfile(built, package / "module.so")
    said: list[str] = []
    wheel = build_wheel(package.parent, tmp_path / "out", levels=[LEVEL], say=said.append)
    assert said == []
    folder = f"with_module/_opsmith/libraries/{LEVEL}"
    assert {f"{folder}/module.so", f"{folder}/libtvm_ffi.so"} <= set(contents(wheel))
    site = tmp_path / "site"
    install(wheel, site)
    done = run(site, WITHOUT + USE)
    places = [str(site / folder / name) for name in ("libtvm_ffi.so", "module.so")]
    assert done.stdout.split() == places, done.stderr
