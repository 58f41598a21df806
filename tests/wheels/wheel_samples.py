"""A package that is made into wheels, and what to do with them."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
import zipfile
from pathlib import Path

from opsmith.kernels.toolchain import nvcc
from opsmith.wheels.platforms import find_platform

SAMPLE = Path(__file__).with_name("sample")
USABLE_NVCC = nvcc.usable_nvcc
LEVEL = find_platform("native").levels[0]
#: Neither opsmith, nor what building and the command line need.
WITHOUT = """
import sys
for name in ("opsmith", "cmake", "ninja", "jinja2", "rich", "typer"):
    sys.modules[name] = None
"""
USE = """
import torch
from sample_ops import Operator, pick, weighted_square

x, weight = torch.randn(3, 2, requires_grad=True), torch.tensor([2.0, 3.0])
out = weighted_square(x, weight)
assert torch.equal(out, weight * (x * x)), out
out.sum().backward()
torch.testing.assert_close(x.grad, (2 * weight * x).detach())
assert isinstance(pick, Operator)
compiled = torch.compile(weighted_square, fullgraph=True, backend="aot_eager")
assert torch.equal(compiled(x, weight), out)
assert torch.equal(torch.vmap(weighted_square, (0, None))(x[None], weight)[0], out)
assert pick(torch.arange(4.0), torch.tensor([3, 1])).tolist() == [3, 1]
for arguments in (
    (torch.ones(3), torch.tensor([7])),
    (torch.tensor([-1.0, 1.0]), torch.tensor([1, 0])),
    (torch.ones(3, dtype=torch.float64), torch.tensor([0])),
):
    try:
        pick(*arguments)
    except RuntimeError as error:
        print(error)
    else:
        raise AssertionError(arguments)
print("calls", weighted_square.kernels["cpu"].calls)
print("library", pick.kernels["cpu"].library.path)
"""


def install(wheel: Path, folder: Path) -> None:
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
    subprocess.run([*pip, "--no-deps", "--target", str(folder), str(wheel)], check=True)


def run(site: Path, text: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", textwrap.dedent(text)],
        env={**os.environ, "PYTHONPATH": str(site), **environment},
        capture_output=True,
        text=True,
    )


def contents(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        return {name: archive.read(name) for name in archive.namelist()}
