"""What a custom class costs: calling its methods, and building it; beside one written by hand.

`by hand` is benchmarks/custom_class_by_hand.cpp, a TorchBind class as the tutorial has it.

    python benchmarks/custom_class.py
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import figures
import torch
from jaxtyping import Float
from rich.console import Console
from rich.table import Table
from sampling import Timings, interleave, machine
from torch import Tensor

import opsmith

HERE = Path(__file__).parent
BUILD = f"""
import json, sys, time
sys.argv = ["custom_class.py"]
sys.path.insert(0, {str(HERE)!r})
import torch
from opsmith import custom_class, op
start = time.perf_counter()
import custom_class
custom_class.IdentityConvClass.forward.build()
print(json.dumps(time.perf_counter() - start))
"""


@opsmith.custom_class("opsmith_bench::IdentityConvClass")
class IdentityConvClass:
    """Gives its argument back."""

    channels: int

    def forward(self, x: Float[Tensor, "N {channels} H W"]) -> Float[Tensor, "N {channels} H W"]:
        """Give a copy of `x`."""
        return x.clone()

    def get_channels(self) -> int:
        """How many channels `forward` takes."""
        return self.channels


IdentityConvClass.forward.register_kernel("cpu", source=HERE / "custom_class_opsmith.cpp")


def build_by_hand(folder: Path) -> float:
    """Compile and load custom_class_by_hand.cpp, as it costs least; gives the seconds."""
    torch_home = Path(torch.__file__).parent
    library = folder / "custom_class_by_hand.so"
    started = time.perf_counter()
    subprocess.run(
        [
            "g++",
            "-O2",
            "-std=c++20",
            "-shared",
            "-fPIC",
            f"-I{torch_home / 'include'}",
            str(HERE / "custom_class_by_hand.cpp"),
            f"-L{torch_home / 'lib'}",
            "-ltorch_cpu",
            "-lc10",
            "-o",
            str(library),
        ],
        check=True,
    )
    seconds = time.perf_counter() - started
    torch.ops.load_library(library)
    return seconds


def build_seconds(cache: Path) -> float:
    """Declare and build the class in a process and with a cache of its own."""
    done = subprocess.run(
        [sys.executable, "-c", BUILD],
        env=os.environ | {"OPSMITH_CACHE": str(cache)},
        check=True,
        capture_output=True,
        text=True,
    )
    return float(json.loads(done.stdout.splitlines()[-1]))


def measure_calls(rounds: int) -> dict[str, Timings]:
    """Time what is done with objects of both classes."""
    by_hand = torch.classes.opsmith_bench_by_hand.IdentityConvClass
    objects: dict[str, Any] = {"opsmith": IdentityConvClass(4), "by hand": by_hand(4)}
    classes: dict[str, Any] = {
        "opsmith": torch.classes.opsmith_bench.IdentityConvClass,
        "by hand": by_hand,
    }
    x = torch.randn(1, 4, 2, 2)

    def measure(call: Callable[[Any], object], of: dict[str, Any] = objects) -> Timings:
        bound = {name: partial(call, value) for name, value in of.items()}
        return interleave(bound, rounds=rounds, calls=100)

    with torch.no_grad():
        results = {
            "forward, 16 floats": measure(lambda made: made.forward(x)),
            "get_channels": measure(lambda made: made.get_channels()),
            "construction": measure(lambda kind: kind(4), classes),
        }
    IdentityConvClass.forward.register_autograd(lambda ctx, grad: (None, grad))
    results["forward, with an autograd rule"] = measure(lambda made: made.forward(x))
    return results


def main() -> None:
    """Measure, and print the tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=400)
    parser.add_argument("--no-build", action="store_true", help="measure calls only")
    chosen = parser.parse_args()
    IdentityConvClass.forward.build()
    console = Console(width=100)
    with tempfile.TemporaryDirectory() as folder:
        by_hand = build_by_hand(Path(folder))
    calls = Table(title="A custom class, µs, median")
    for column in ("", "opsmith", "by hand", "opsmith / by hand", "asked"):
        calls.add_column(column, justify="left" if not column else "right")
    measured = measure_calls(chosen.rounds)
    for row, timings in measured.items():
        times = [f"{timings.median(name) * 1e6:.2f}" for name in ("opsmith", "by hand")]
        asked = "≤ 1.20" if row.startswith("forward") else ""
        calls.add_row(row, *times, f"{timings.ratio('opsmith', 'by hand'):.2f}", asked)
    console.print(calls)
    method = measured["forward, 16 floats"]
    if not chosen.no_build:
        builds = Table(title="Building it, s")
        for column in ("first class, cold", "asked", "cached", "by hand, g++ alone"):
            builds.add_column(column, justify="right")
        with tempfile.TemporaryDirectory() as folder:
            cold, cached = build_seconds(Path(folder)), build_seconds(Path(folder))
        builds.add_row(f"{cold:.1f}", "≤ 20", f"{cached:.2f}", f"{by_hand:.1f}")
        console.print(builds)
        shown = {
            "class/method": figures.seconds(method.median("opsmith")),
            "class/hand": figures.seconds(method.median("by hand")),
            "class/of-hand": f"{method.ratio('opsmith', 'by hand'):.2f}",
            "class/build": figures.seconds(cold),
        }
        figures.keep(__file__, machine(), shown)
    console.print(f"{chosen.rounds} interleaved rounds of 100 calls. {machine()}", soft_wrap=True)


if __name__ == "__main__":
    main()
