"""`bev_pool_v2`'s kernel inside ONNX Runtime against PyTorch, and a network that uses it.

The kernel at BEVDet's size, in a model of one call: through PyTorch, and by `session.run` with
NumPy arrays in a session of as many threads, from the library and as the standard nodes of the
inline form. Then the network of `examples/bev_network`, from images to map.

    python benchmarks/in_onnxruntime.py
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import figures
import torch
from bev_pool_v2 import SIZES, drawn, fastest, show
from sampling import Timings, machine
from torch import Tensor, nn

import opsmith
from opsmith.targets.exporting.artifact import Artifact
from opsmith.targets.onnxruntime.session import OnnxRuntimeSession, silent_options

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from examples.bev_network.network import BevNetwork, dynamic_shapes  # noqa: E402
from examples.bev_network.scenes import draw_scene  # noqa: E402
from gallery.bev_pool_v2.bev_pool_v2 import bev_pool_v2  # noqa: E402

FORMS = ("library", "inline")


class Pool(nn.Module):
    """One call."""

    def __init__(self, bev_size: Sequence[int]) -> None:
        super().__init__()
        self.bev_size = tuple(bev_size)

    def forward(self, *tensors: Tensor) -> Tensor:
        """Pool."""
        pooled: Tensor = bev_pool_v2(*tensors, self.bev_size)
        return pooled


def session(artifact: Artifact) -> OnnxRuntimeSession:
    """Load with as many threads as PyTorch has."""
    options = silent_options()
    options.intra_op_num_threads = torch.get_num_threads()
    return OnnxRuntimeSession(artifact, options)


def contestants(
    model: nn.Module, inputs: tuple[Tensor, ...], folder: Path, **options: Any
) -> dict[str, Callable[[], object]]:
    """Export in each form; what there is to time, by name."""

    def eager() -> Tensor:
        with torch.no_grad():
            result: Tensor = model(*inputs)
        return result

    found: dict[str, Callable[[], object]] = {"PyTorch": eager}
    for form in FORMS:
        out = folder / form
        artifact = opsmith.export(
            model, inputs, target="onnxruntime", out=out, form=form, say=None, **options
        )
        loaded = session(artifact)
        names = [spec.name for spec in artifact.manifest.inputs]
        outputs = [spec.name for spec in artifact.manifest.outputs]
        arrays = [tensor.contiguous().numpy() for tensor in inputs]
        feeds = dict(zip(names, arrays, strict=True))
        found[form] = partial(loaded.session.run, outputs, feeds)
    return found


def timed(calls_of: Mapping[str, Callable[[], object]], rounds: int, calls: int) -> Timings:
    """Time all in turn; the inline form apart, which takes so long that few calls are enough."""
    quick = {name: call for name, call in calls_of.items() if name != "inline"}
    slow = fastest({"inline": calls_of["inline"]}, rounds=3, calls=2)
    return Timings({**fastest(quick, rounds=rounds, calls=calls).rounds, **slow.rounds})


def network() -> tuple[nn.Module, tuple[Tensor, ...], Mapping[str, Any]]:
    """Build the example's network, and a scene for it."""
    torch.manual_seed(0)
    return BevNetwork().eval(), draw_scene(0).inputs, {"dynamic_shapes": dynamic_shapes()}


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--calls", type=int, default=30)
    parser.add_argument("--threads", type=int, default=2)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)

    times: dict[str, Timings] = {}
    with tempfile.TemporaryDirectory() as folder:
        for size, arguments in SIZES.items():
            case = arguments()
            *tensors, bev_size = case.values()
            inputs = tuple(tensor.detach() for tensor in tensors)
            pool = contestants(Pool(bev_size), inputs, Path(folder) / size)
            times[size] = timed(pool, options.rounds, options.calls)
        model, inputs, more = network()
        whole = contestants(model, inputs, Path(folder) / "network", **more)
        times["the network"] = timed(whole, options.rounds, options.calls)

    names = ("PyTorch", *FORMS)
    table = drawn("Milliseconds", *names, "library/PyTorch", "inline/PyTorch")
    for what, timings in times.items():
        table.add_row(
            what,
            "",
            *(f"{timings.median(name) * 1e3:.2f}" for name in names),
            f"{timings.ratio('library', 'PyTorch'):.2f}",
            f"{timings.median('inline') / timings.median('PyTorch'):.1f}",
        )
    show([table], options.rounds, options.calls)
    pool, network_ = times["six cameras"], times["the network"]
    figures.keep(
        __file__,
        machine(),
        {
            "onnxruntime/pool": figures.seconds(pool.median("library")),
            "onnxruntime/torch-pool": figures.seconds(pool.median("PyTorch")),
            "onnxruntime/of-torch": f"{pool.ratio('library', 'PyTorch'):.1f}",
            "onnxruntime/network": figures.seconds(network_.median("library")),
            "onnxruntime/torch-network": figures.seconds(network_.median("PyTorch")),
            "onnxruntime/network-of-torch": f"{network_.ratio('library', 'PyTorch'):.2f}",
        },
    )


if __name__ == "__main__":
    main()
