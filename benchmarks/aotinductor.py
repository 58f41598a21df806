"""What a call costs in a package of AOTInductor, a network in each way of running it, and a build.

The calls: the identity operator on 16 floats, many in a row, by the C shim that opsmith generates
(direct), by PyTorch's proxy executor, and eagerly from C++ and Python. The network:
examples/bev_network, packaged, against eager and torch.compile, and the C++ program against Python.
The build: that program, with an empty cache.

    python benchmarks/aotinductor.py
"""

from __future__ import annotations

import argparse
import ctypes
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import figures
import torch
from jaxtyping import Float32
from rich.console import Console
from rich.table import Table
from sampling import Timings, interleave, machine
from torch import Tensor, nn

import opsmith
from opsmith import kernels
from opsmith.targets.aotinductor.runtime import build_runner

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
CHAIN = 100


@opsmith.op("opsmith_bench::identity")
def identity(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
    return x.clone()


identity.register_kernel("cpu", source=HERE / "identity_opsmith.cpp")


class Chain(nn.Module):
    """Calls the operator many times in a row."""

    def forward(self, x: Tensor) -> Tensor:
        """Pass `x` through all calls."""
        for _ in range(CHAIN):
            x = identity(x)
        return x


def loader(artifact: opsmith.LoadedModel) -> Callable[[list[Tensor]], list[Tensor]]:
    """What PyTorch's own loader offers, without opsmith's checks of inputs."""
    return artifact.runner._loader.run


def time_calls(folder: Path, rounds: int) -> Timings:
    packages = {}
    for calls in ("direct", "proxy"):
        out = folder / calls
        options = {"target": "aotinductor", "calls": calls, "say": None}
        opsmith.export(Chain().eval(), (torch.zeros(16),), out=out, **options)
        packages[calls] = loader(opsmith.load(out))
    library = kernels.Recipe(
        "aotinductor_eager", [HERE / "aotinductor_eager.cpp"], torch="full"
    ).build()
    eager = ctypes.CDLL(str(library)).call_eagerly
    x = [torch.zeros(16)]

    def from_python() -> None:
        y = x[0]
        for _ in range(CHAIN):
            y = identity(y)

    return interleave(
        {
            "direct": lambda: packages["direct"](x),
            "proxy": lambda: packages["proxy"](x),
            "eager C++": lambda: eager(b"opsmith_bench::identity", ctypes.c_int64(CHAIN)),
            "eager Python": from_python,
        },
        rounds=rounds,
        calls=5,
    )


def time_network(folder: Path, rounds: int, repeat: int = 40) -> Timings:
    from examples.bev_network.network import BevNetwork, dynamic_shapes
    from examples.bev_network.scenes import draw_scene

    torch.manual_seed(0)
    network = BevNetwork().eval()
    inputs = draw_scene(0).inputs
    out = folder / "network"
    opsmith.export(
        network, inputs, target="aotinductor", out=out, dynamic_shapes=dynamic_shapes(), say=None
    )
    loaded = opsmith.load(out)
    compiled = torch.compile(network)
    torch.save(tuple(inputs), folder / "inputs.pt")
    command = [build_runner(), out, folder / "inputs.pt", "--repeat", str(repeat)]
    command += ["--threads", str(torch.get_num_threads())]
    expected = network(*inputs)
    torch.testing.assert_close(loaded(*inputs), expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(compiled(*inputs), expected, rtol=1e-4, atol=1e-4)

    from_python = {
        "eager": lambda: network(*inputs),
        "torch.compile": lambda: compiled(*inputs),
        "package, Python": lambda: loaded(*inputs),
    }
    # The fastest run of each round: where threads wait for each other, one process more on the
    # machine makes a median many times longer.
    seconds: dict[str, list[float]] = {}
    for _ in range(rounds):
        timings = interleave(from_python, rounds=repeat, calls=1)
        done = subprocess.run(command, env={}, check=True, capture_output=True, text=True)
        found = re.search(r"fastest ([\d.]+) ms", done.stdout)
        assert found is not None
        for name in from_python:
            seconds.setdefault(name, []).append(min(timings.rounds[name]))
        seconds.setdefault("package, C++", []).append(float(found[1]) / 1e3)
    return Timings(seconds)


def build_seconds(cache: Path) -> float:
    """Build the C++ program in a process and with a cache of its own."""
    code = (
        "import time; from opsmith.targets.aotinductor.runtime import build_runner; "
        "start = time.perf_counter(); build_runner(); print(time.perf_counter() - start)"
    )
    environment = os.environ | {"OPSMITH_CACHE": str(cache)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True
    )
    return float(done.stdout)


def show(
    title: str, timings: Timings, against: str, scale: float, asked: dict[str, str] | None = None
) -> Table:
    table = Table(title=title)
    for column in ("", "median", f"/ {against}", *(["asked"] if asked else [])):
        table.add_column(column, justify="left" if not column else "right")
    for name in timings.rounds:
        ratio = f"{timings.ratio(name, against):.2f}"
        limit = [asked.get(name, "")] if asked else []
        table.add_row(name, f"{timings.median(name) * scale:.2f}", ratio, *limit)
    return table


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=200)
    rounds = parser.parse_args().rounds
    console = Console(width=100)
    with tempfile.TemporaryDirectory() as name, torch.no_grad():
        calls = time_calls(Path(name), rounds)
        scale = 1e6 / CHAIN
        asked = {"direct": "≤ 1.20"}
        console.print(show("One call on 16 floats, µs", calls, "eager C++", scale, asked))
        network = time_network(Path(name), max(rounds // 40, 3))
        console.print(
            show(
                "The network of examples/bev_network, fastest of a round, ms", network, "eager", 1e3
            )
        )
        seconds = build_seconds(Path(name) / "cache")
        console.print(f"Building the C++ program: {seconds:.1f} s, asked ≤ 25 s")
    console.print(
        f"{rounds} interleaved rounds of {CHAIN} calls in a row. {machine()}", soft_wrap=True
    )
    figures.keep(
        __file__,
        machine(),
        {
            "package/call": figures.seconds(calls.median("direct") / CHAIN),
            "package/eager-call": figures.seconds(calls.median("eager C++") / CHAIN),
            "package/proxy-call": figures.seconds(calls.median("proxy") / CHAIN),
            "package/of-eager-call": f"{calls.ratio('direct', 'eager C++'):.2f}",
            "network/program": figures.seconds(network.median("package, C++")),
            "network/eager": figures.seconds(network.median("eager")),
            "network/compiled": figures.seconds(network.median("torch.compile")),
            "network/python": figures.seconds(network.median("package, Python")),
            "network/of-eager": f"{network.ratio('package, C++', 'eager'):.2f}",
            "network/build-program": figures.seconds(seconds),
        },
    )


if __name__ == "__main__":
    main()
