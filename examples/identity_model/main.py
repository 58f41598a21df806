"""Take the model that changes nothing through every runtime, and compare bits.

    python examples/identity_model/main.py [--out FOLDER]

In eager, after export, in the compiled package from Python, and in a C++ program without Python; on
the CPU, and on CUDA where there is a device.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

import torch
from identity_model import IdentityModel
from torch import Tensor

import opsmith

CHANNELS = 3


def compare(where: str, got: Tensor, x: Tensor) -> None:
    """Print whether `got` is `x`, bit for bit.

    Raises:
        SystemExit: it is not.
    """
    same = got.shape == x.shape and torch.equal(got.view(torch.int32), x.view(torch.int32))
    print(f"  {where:<28} {'equal, bit for bit' if same else 'NOT EQUAL'}")
    if not same:
        sys.exit(1)


def run_cpp(folder: Path, x: Tensor, work: Path) -> Tensor:
    """Run the artifact in the C++ program, with an empty environment."""
    torch.save(x.cpu(), work / "input.pt")
    subprocess.run(
        [folder / "runner" / "opsmith-run", folder, work / "input.pt", "--output", work / "out.pt"],
        check=True,
        env={},
        stdout=subprocess.DEVNULL,
    )
    (got,) = torch.load(work / "out.pt")
    return got


def run_on(device: str, out: Path, work: Path) -> None:
    """All runtimes on one device."""
    model = IdentityModel(CHANNELS).to(device).eval()
    # A batch of 2 is exported, others are run.
    example = torch.randn(2, CHANNELS, 16, 20, device=device)
    x = torch.randn(5, CHANNELS, 16, 20, device=device)
    shapes = {"x": {0: torch.export.Dim("batch", min=1, max=64)}}
    program = torch.export.export(model, (example,), dynamic_shapes=shapes)
    print(f"\nThe exported graph on {device}:\n")
    program.graph_module.print_readable()

    folder = out / f"identity_model_{device}"
    print()
    opsmith.export(
        model,
        (example,),
        target="aotinductor",
        out=folder,
        dynamic_shapes=shapes,
        overwrite=True,
        runner=True,
    )
    print(f"\nOutput and input on {device}:\n")
    with torch.no_grad():
        compare("eager", model(x), x)
        compare("after torch.export", program.module()(x), x)
    compare("package, from Python", opsmith.load(folder)(x), x)
    compare("package, from C++", run_cpp(folder, x, work), x.cpu())


def main() -> None:
    """Run the example."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--out", type=Path, help="where the artifacts stay; else they are removed")
    chosen = parser.parse_args().out
    with tempfile.TemporaryDirectory() as work:
        for device in ["cpu", *(["cuda"] if torch.cuda.is_available() else [])]:
            run_on(device, chosen or Path(work), Path(work))


if __name__ == "__main__":
    main()
