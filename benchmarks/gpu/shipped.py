"""Run on the device what ships: AOTInductor's packages, and wheels where nvcc and opsmith are not.

python benchmarks/gpu/shipped.py
"""

# ruff: noqa: E402

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import traceback
import zipfile
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "in_triton")]

import torch
from torch import Tensor, nn

import opsmith
from gallery.bev_pool_v2.bev_pool_v2 import bev_pool_v2
from gallery.bev_pool_v2.inputs import camera_case
from gallery.my_add.my_add import my_add

DEVICE = "cuda"
FEW = {"feature_size": (4, 6), "bins": 9, "channels": 8}
#: What a process without nvcc and without opsmith runs, in the folder of an unpacked wheel.
USE = """
import sys
sys.modules["opsmith"] = None
import torch
from {package} import {operator}
arguments = torch.load("arguments.pt", weights_only=True)
torch.save({operator}(*[a.cuda() if isinstance(a, torch.Tensor) else a for a in arguments]).cpu(),
           "result.pt")
"""
PACKAGE = '''
import opsmith
from jaxtyping import Float
from torch import Tensor

@opsmith.op("shipped::doubled")
def doubled(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    """Double."""
    return 2 * x

doubled.register_kernel("cuda", triton=".kernels:double", grid=("N",))
'''
KERNELS = """
import triton
import triton.language as tl

@triton.jit
def double(x, out):
    i = tl.program_id(0)
    tl.store(out + i, 2 * tl.load(x + i))
"""


class Pooled(nn.Module):
    """A model of two operators with kernels in CUDA C++ around one of PyTorch's."""

    def forward(
        self,
        depth: Tensor,
        feat: Tensor,
        ranks_depth: Tensor,
        ranks_feat: Tensor,
        ranks_bev: Tensor,
        interval_starts: Tensor,
        interval_lengths: Tensor,
    ) -> Tensor:
        """Pool points into cells, and add what is positive."""
        cells = bev_pool_v2(
            depth.softmax(2),
            feat,
            ranks_depth,
            ranks_feat,
            ranks_bev,
            interval_starts,
            interval_lengths,
            (1, 128, 128),
        )
        return my_add(cells, cells.relu())


class Scaled(nn.Module):
    """A model of an operator whose kernel is in Triton."""

    def forward(self, x: Tensor, weight: Tensor) -> Tensor:
        """Scale exponentials."""
        from triton_kernels import scale

        return scale(x.exp(), weight, 0.5)


def packaged(model: nn.Module, inputs: tuple[Tensor, ...], folder: Path) -> None:
    """Export a model, and run it from Python and by the C++ program; compare both with eager."""
    inputs = tuple(one.to(DEVICE) for one in inputs)
    right = model(*inputs)
    opsmith.export(model, inputs, target="aotinductor", out=folder, runner=True)
    torch.testing.assert_close(opsmith.load(folder)(*inputs), right, rtol=1e-4, atol=1e-4)
    given, written = folder.parent / "in.pt", folder.parent / "out.pt"
    torch.save(inputs, given)
    program = folder / "runner" / "opsmith-run"
    subprocess.run([program, folder, given, "--output", written], check=True)
    (found,) = torch.load(written)
    torch.testing.assert_close(found.to(DEVICE), right, rtol=1e-4, atol=1e-4)


def bev_package(folder: Path) -> None:
    """Run a package with kernels in CUDA C++."""
    case = camera_case(torch.float32, 0, **FEW)
    names = ("depth", "feat", "ranks_depth", "ranks_feat", "ranks_bev")
    starts = ("interval_starts", "interval_lengths")
    packaged(Pooled(), tuple(case[name] for name in names + starts), folder / "package")


def triton_package(folder: Path) -> None:
    """Run a package with a kernel in Triton."""
    packaged(Scaled(), (torch.rand(33, 48), torch.rand(48)), folder / "package")


def unpacked(source: Path, folder: Path, *words: str) -> Path:
    """Build a wheel, and unpack it."""
    command = [sys.executable, "-m", "opsmith", "wheel", source, "--out", folder, *words]
    subprocess.run(command, check=True, cwd=ROOT)
    (wheel,) = folder.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(folder / "site")
    return folder / "site"


def used(site: Path, package: str, operator: str, *arguments: object) -> Tensor:
    """Call an operator of an unpacked wheel, in a process without nvcc and without opsmith."""
    torch.save(arguments, site / "arguments.pt")
    environment = {**os.environ, "PATH": "/usr/bin:/bin", "OPSMITH_CACHE": str(site / "none")}
    environment["PYTHONPATH"] = str(site)
    text = USE.format(package=package, operator=operator)
    subprocess.run([sys.executable, "-c", text], check=True, cwd=site, env=environment)
    return torch.load(site / "result.pt", weights_only=True)


def cuda_wheel(folder: Path) -> None:
    """Call the kernel in CUDA C++ that a wheel carries."""
    site = unpacked(ROOT / "gallery" / "my_add" / "my_add.py", folder, "--platform", "native")
    a, b = torch.rand(1000), torch.rand(1000)
    torch.testing.assert_close(used(site, "my_add", "my_add", a, b), 2 * a + b)


def triton_wheel(folder: Path) -> None:
    """Call the kernel that Triton compiled into a wheel."""
    package = folder / "source" / "shipped_ops"
    package.mkdir(parents=True)
    (package.parent / "pyproject.toml").write_text(
        '[project]\nname = "shipped-ops"\nversion = "1.0"\n'
    )
    (package / "__init__.py").write_text(PACKAGE)
    (package / "kernels.py").write_text(KERNELS)
    site = unpacked(package.parent, folder, "--platform", "native")
    x = torch.rand(1000)
    torch.testing.assert_close(used(site, "shipped_ops", "doubled", x), 2 * x)


SHIPPED: tuple[Callable[[Path], None], ...] = (
    bev_package,
    triton_package,
    cuda_wheel,
    triton_wheel,
)


def main() -> int:
    """Run all; 1 where one fails."""
    failed = 0
    for one in SHIPPED:
        with tempfile.TemporaryDirectory() as folder:
            try:
                one(Path(folder))
            except Exception:
                traceback.print_exc()
                failed += 1
                print(f"{one.__name__:16} FAILED", flush=True)
            else:
                print(f"{one.__name__:16} right", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
