"""Deformable convolution: opsmith's operator against torchvision's and ONNX Runtime's.

Layers of three sizes, 3 x 3 with mask and bias, float32. torchvision does not import beside a CPU
build of torch, so it runs in a virtual environment of its own, which the first run makes: 5.6 GB,
about a minute.

    python benchmarks/deform_conv2d.py [--environment FOLDER]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import figures
import onnxruntime
import torch
from onnx import TensorProto, helper, numpy_helper
from rich.console import Console
from rich.table import Table
from sampling import Timings, machine
from torch import Tensor

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from gallery.deform_conv2d.deform_conv2d import (  # noqa: E402
    deform_conv2d,
    deform_conv2d_backward_input,
    deform_conv2d_backward_weight,
)
from gallery.deform_conv2d.inputs import case  # noqa: E402

TORCHVISION = ("torch==2.14.1", "torchvision==0.29.1")
SIZES: dict[str, dict[str, Any]] = {
    "1x64x56x56": {"channels": 64, "outputs": 64, "size": (56, 56)},
    "2x128x64x64": {"batch": 2, "channels": 128, "outputs": 128, "size": (64, 64)},
    "1x256x28x28": {"channels": 256, "outputs": 256, "size": (28, 28)},
}
#: Threads of a runtime that wait for work take the next contestant's time.
PAUSE = 0.05


def default_environment() -> Path:
    cache = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(cache) / "opsmith" / "benchmarks" / "torchvision-0.29.1"


def made_environment(folder: Path) -> Path:
    """Return the Python of an environment with torchvision, making it if need be."""
    python = folder / "bin" / "python"
    command = [python, "-c", "import torch, torchvision; print(torch.__version__)"]
    if python.exists() and subprocess.run(command, stdout=subprocess.DEVNULL).returncode == 0:
        return python
    print(f"Making an environment with {' and '.join(TORCHVISION)} in {folder}", file=sys.stderr)
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "numpy"]
    subprocess.run([*install, *TORCHVISION], check=True)
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return python


class Torchvision:
    """torchvision in its own process, asked for one timing at a time."""

    def __init__(self, python: Path, threads: int) -> None:
        worker = Path(__file__).parent / "torchvision_worker.py"
        self._process = subprocess.Popen(
            [python, worker, str(threads)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def seconds(self, arguments: Path, passes: str, calls: int) -> float:
        """Return the fastest call's seconds."""
        assert self._process.stdin
        assert self._process.stdout
        self._process.stdin.write(json.dumps([str(arguments), passes, calls]) + "\n")
        self._process.stdin.flush()
        line = self._process.stdout.readline()
        if not line:
            sys.exit("torchvision's process ended; what it said is above")
        return float(line)

    def close(self) -> None:
        """End the process."""
        self._process.communicate()


def fastest(call: Callable[[], object]) -> Callable[[int], float]:
    """Make a contestant of a call in this process."""

    def seconds(calls: int) -> float:
        call()
        spent = []
        for _ in range(calls):
            started = time.perf_counter()
            call()
            spent.append(time.perf_counter() - started)
        return min(spent)

    return seconds


def onnx_runtime(arguments: Mapping[str, Any], threads: int) -> Callable[[], Any]:
    """Return a call of ONNX Runtime's own DeformConv, its weights constants as in a model."""
    varying = {name: arguments[name].numpy() for name in ("input", "offset", "mask")}
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, value.shape)
        for name, value in varying.items()
    ]
    node = helper.make_node(
        "DeformConv",
        ["input", "weight", "offset", "bias", "mask"],
        ["out"],
        kernel_shape=arguments["weight"].shape[2:],
        strides=arguments["stride"],
        pads=arguments["padding"] * 2,
        dilations=arguments["dilation"],
    )
    constants = [
        numpy_helper.from_array(arguments[name].numpy(), name) for name in ("weight", "bias")
    ]
    out = helper.make_tensor_value_info("out", TensorProto.FLOAT, None)
    graph = helper.make_graph([node], "deform_conv", inputs, [out], constants)
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 19)], ir_version=9)
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = threads
    session = onnxruntime.InferenceSession(
        model.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )
    return lambda: session.run(None, varying)


def plain_convolution(arguments: Mapping[str, Any]) -> Callable[[], Tensor]:
    """Return a call of `conv2d` of the same size: what moving the taps costs is the rest."""
    names = ("input", "weight", "bias", "stride", "padding", "dilation")
    return lambda: torch.conv2d(*(arguments[name] for name in names))


def forward(arguments: Mapping[str, Any]) -> Tensor:
    with torch.no_grad():
        return deform_conv2d(**arguments)


def backward(arguments: Mapping[str, Any], grad: Tensor) -> Callable[[], tuple[Tensor, ...]]:
    own = {
        name: value.detach().clone().requires_grad_() if isinstance(value, Tensor) else value
        for name, value in arguments.items()
    }
    leaves = [own[name] for name in ("input", "offset", "weight", "bias", "mask")]
    out = deform_conv2d(**own)
    return lambda: torch.autograd.grad(out, leaves, grad, retain_graph=True)


def difference(ours: list[Tensor], theirs: list[Tensor]) -> float:
    """Return the largest difference, relative to each tensor's largest value."""
    pairs = zip(ours, theirs, strict=True)
    return max(float((a - b).abs().max() / b.abs().max()) for a, b in pairs)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--calls", type=int, default=5)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument(
        "--environment",
        type=Path,
        default=default_environment(),
        help="where torchvision's virtual environment is, or shall be (default: %(default)s)",
    )
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    python = made_environment(options.environment.absolute())
    for operator in (deform_conv2d, deform_conv2d_backward_input, deform_conv2d_backward_weight):
        operator.build()

    console = Console(width=100)
    names = ("torchvision", "onnxruntime", "conv2d")
    table = Table("", "", title="Milliseconds", caption="over: the others' time by ours")
    for column in ("opsmith", *(text for name in names for text in (name, "over"))):
        table.add_column(column, justify="right")
    worst = dict.fromkeys(names[:2], 0.0)
    measured: dict[str, list[Timings]] = {"forward": [], "backward": []}
    torchvision = Torchvision(python, options.threads)
    with tempfile.TemporaryDirectory() as folder:
        for size, shape in SIZES.items():
            arguments = case(reach=1.0, **shape)
            grad = torch.randn_like(forward(arguments))
            path = Path(folder) / size
            torch.save({**arguments, "grad": grad}, path)
            passes: dict[str, dict[str, Callable[[int], float]]] = {
                "forward": {
                    "opsmith": fastest(lambda arguments=arguments: forward(arguments)),
                    "onnxruntime": fastest(onnx_runtime(arguments, options.threads)),
                    "conv2d": fastest(plain_convolution(arguments)),
                },
                "backward": {"opsmith": fastest(backward(arguments, grad))},
            }
            ours = {"forward": [forward(arguments)], "backward": backward(arguments, grad)()}
            by_runtime = torch.from_numpy(onnx_runtime(arguments, options.threads)()[0])
            worst["onnxruntime"] = max(
                worst["onnxruntime"], difference(ours["forward"], [by_runtime])
            )
            for name, contestants in passes.items():
                contestants["torchvision"] = lambda calls, path=path, name=name: (
                    torchvision.seconds(path, name, calls)
                )
                timings = timed(contestants, options.rounds, options.calls)
                measured[name].append(timings)
                found = difference(ours[name], torch.load(f"{path}.{name}"))
                worst["torchvision"] = max(worst["torchvision"], found)
                cells = [f"{timings.median('opsmith') * 1e3:.2f}"]
                for other in names:
                    if other not in contestants:
                        cells += ["", ""]
                        continue
                    cells.append(f"{timings.median(other) * 1e3:.2f}")
                    cells.append(f"{timings.ratio(other, 'opsmith'):.2f}")
                table.add_row(size, name, *cells)
    torchvision.close()
    console.print(table)
    for name, found in worst.items():
        console.print(f"Largest difference to {name}, relative to the largest value: {found:.1e}")
    console.print(
        f"Medians of {options.rounds} interleaved rounds, each the fastest of {options.calls} "
        f"calls. torchvision 0.29.1 with torch 2.14.1, onnxruntime {onnxruntime.__version__}. "
        f"{machine()}",
        soft_wrap=True,
    )
    figures.keep(__file__, machine(), shown(measured["forward"], measured["backward"]))


def shown(forward: list[Timings], backward: list[Timings]) -> dict[str, str]:
    """The figures of the pages: every size in turn, or the range over all."""

    def spent(several: list[Timings], name: str) -> str:
        return figures.seconds(*(one.median(name) for one in several))

    def faster(several: list[Timings], name: str) -> str:
        return figures.span(*(one.ratio(name, "opsmith") for one in several))

    return {
        "deform/opsmith": spent(forward, "opsmith"),
        "deform/torchvision": spent(forward, "torchvision"),
        "deform/faster": faster(forward, "torchvision"),
        "deform/onnxruntime": spent(forward, "onnxruntime"),
        "deform/faster-than-onnxruntime": faster(forward, "onnxruntime"),
        "deform/backward": spent(backward, "opsmith"),
        "deform/torchvision-backward": spent(backward, "torchvision"),
        "deform/backward-faster": faster(backward, "torchvision"),
    }


def timed(contestants: Mapping[str, Callable[[int], float]], rounds: int, calls: int) -> Timings:
    """Time the contestants in turn, with a pause before each."""
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for _ in range(rounds):
        for name, contestant in contestants.items():
            time.sleep(PAUSE)
            seconds[name].append(contestant(calls))
    return Timings(seconds)


if __name__ == "__main__":
    main()
