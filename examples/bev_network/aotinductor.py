"""Package the network with AOTInductor, and run it in a C++ program that has no Python.

python examples/bev_network/aotinductor.py [--out FOLDER] [--steps N]
"""

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch
from torch import Tensor

import opsmith
from examples.bev_network.network import BevNetwork, dynamic_shapes, train
from examples.bev_network.scenes import Scene, draw_scene
from opsmith.targets import relative_difference

ALLOWED = 1e-5


def run_cpp(folder: Path, inputs: tuple[Tensor, ...]) -> Tensor:
    """Run the artifact by the program in it, with an empty environment.

    Raises:
        CalledProcessError: the program failed; it has said why.
    """
    with tempfile.TemporaryDirectory() as temporary:
        given, result = Path(temporary, "in.pt"), Path(temporary, "out.pt")
        torch.save(inputs, given)
        command = [folder / "runner" / "opsmith-run", folder, given, "--output", result]
        subprocess.run(command, env={}, check=True, stdout=subprocess.DEVNULL)
        (output,) = torch.load(result)
    return output


def run(folder: Path, steps: int, scenes: list[Scene]) -> float:
    """Train, export, and run scenes that the export has not seen, with other numbers of points.

    Args:
        folder: the artifact's.
        steps: how long to train.
        scenes: what is run.

    Returns:
        The largest difference from PyTorch, over the largest value.
    """
    torch.manual_seed(0)
    print(f"Training {steps} steps on synthetic scenes …")
    network = BevNetwork()
    train(network, [draw_scene(seed) for seed in range(8)], steps)
    network.eval()
    print("Compiling the network, and the program that runs it …")
    opsmith.export(
        network,
        draw_scene(0).inputs,
        target="aotinductor",
        out=folder,
        overwrite=True,
        dynamic_shapes=dynamic_shapes(),
        runner=True,
        verify=[scenes[0].inputs],
    )
    loaded = opsmith.load(folder)
    print("\n  points   difference from PyTorch: in Python   in C++")
    worst = 0.0
    for scene in scenes:
        with torch.no_grad():
            expected = network(*scene.inputs)
        results = loaded(*scene.inputs), run_cpp(folder, tuple(scene.inputs))
        from_python, from_cpp = (relative_difference(expected, result) for result in results)
        print(f"  {len(scene.ranks.ranks_depth):6d} {from_python:35.1e} {from_cpp:8.1e}")
        worst = max(worst, from_python, from_cpp)
    return worst


def main() -> None:
    """Run the example; exit code 1 if the difference is larger than it may be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="where the artifact goes (default: nowhere)")
    parser.add_argument("--steps", type=int, default=20, help="how long to train")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.out or Path(temporary, "artifact")
        difference = run(folder, arguments.steps, [draw_scene(seed) for seed in (100, 101, 102)])
    print(f"\nLargest difference on new scenes: {difference:.1e} of the largest value")
    sys.exit(difference > ALLOWED)


if __name__ == "__main__":
    main()
