"""Train a camera-to-bird's-eye-view network, export it to ONNX in two forms, and compare.

python examples/bev_network/main.py [--out FOLDER] [--steps N]
"""

import argparse
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

import torch

import opsmith
from examples.bev_network.network import BevNetwork, dynamic_shapes, train
from examples.bev_network.scenes import Scene, draw_scene
from opsmith.targets import relative_difference

ALLOWED = 1e-5


def run(folder: Path, steps: int) -> float:
    """Train, export, run.

    Args:
        folder: where the artifacts go.
        steps: how long to train.

    Returns:
        The largest difference between PyTorch and ONNX Runtime, over the largest value.
    """
    torch.manual_seed(0)
    print(f"Training {steps} steps on synthetic scenes …")
    network = BevNetwork()
    scenes = [draw_scene(seed) for seed in range(24)]
    losses = train(network, scenes, steps)
    width = max(steps // 6, 1)
    for step in range(0, steps, width):
        mean = sum(losses[step : step + width]) / len(losses[step : step + width])
        print(f"  steps {step:3d}–{min(step + width, steps) - 1:3d}   loss {mean:.3f}")
    network.eval()

    example, others = scenes[0], [draw_scene(seed) for seed in (100, 101, 102)]
    worst = 0.0
    for form in ("library", "inline"):
        print(f"\nExporting, bev_pool_v2 in the {form} form …")
        artifact = opsmith.export(
            network,
            example.inputs,
            target="onnxruntime",
            out=folder / form,
            overwrite=True,
            dynamic_shapes=dynamic_shapes(),
            form=form,
            verify=[scene.inputs for scene in others[:1]],
        )
        worst = max(worst, compare(network, opsmith.load(artifact.folder), others))
    print(f"\nLargest difference on new scenes: {worst:.1e} of the largest value")
    return worst


def compare(network: BevNetwork, model: opsmith.LoadedModel, scenes: list[Scene]) -> float:
    """Run scenes that the export has not seen, with other numbers of points."""
    worst = 0.0
    for scene in scenes:
        with torch.no_grad():
            expected = network(*scene.inputs)
        started = time.perf_counter()
        found = model(*scene.inputs)
        milliseconds = 1e3 * (time.perf_counter() - started)
        difference = relative_difference(expected, found)
        worst = max(worst, difference)
        points = len(scene.ranks.ranks_depth)
        print(f"  {points:6d} points: {milliseconds:5.1f} ms, difference {difference:.1e}")
    return worst


def main() -> None:
    """Run the example; exit code 1 if the difference is larger than it may be."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", type=Path, help="where the artifacts go (default: nowhere)")
    parser.add_argument("--steps", type=int, default=60, help="how long to train")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        folder = arguments.out or Path(temporary)
        difference = run(folder, arguments.steps)
        if arguments.out:
            print(f"The artifacts are in {folder}; opsmith view {folder / 'library'} shows one.")
    sys.exit(difference > ALLOWED)


if __name__ == "__main__":
    main()
