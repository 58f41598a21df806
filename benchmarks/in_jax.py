"""`bev_pool_v2`'s kernels inside JAX against PyTorch, and what a call costs beside its kernel.

The same libraries' kernels at BEVDet's size: called in PyTorch, and by JAX's compiled function,
forward and with the gradients of depth and features. Then `my_add` on eight numbers, where nearly
all of the time is the call.

PyTorch's threads spin for a while after their work, and hold a core that JAX's want: with
OMP_WAIT_POLICY=passive they sleep.

    python benchmarks/in_jax.py
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import figures
import jax
import torch
from bev_pool_v2 import SIZES, drawn, fastest, forward, forward_and_backward
from rich.console import Console
from sampling import Timings, interleave, machine

import opsmith
from opsmith.targets.jax.runner import to_jax

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from gallery.bev_pool_v2.bev_pool_v2 import bev_pool_v2  # noqa: E402
from gallery.my_add.my_add import my_add  # noqa: E402


def pools(size: str, loaded: Any) -> dict[str, dict[str, Callable[[], object]]]:
    """What there is to time at a size, by pass and runtime."""
    case = SIZES[size](torch.float32, 0)
    grad = torch.ones_like(bev_pool_v2(**case))
    bev_size = tuple(case["bev_size"])
    depth, feat, *rest = (to_jax(v) for v in case.values() if isinstance(v, torch.Tensor))
    weights = to_jax(grad)

    @jax.jit
    def pool(depth: Any, feat: Any) -> Any:
        return loaded.ops.bev_pool_v2(depth, feat, *rest, bev_size)

    @jax.jit
    def both(depth: Any, feat: Any, weights: Any) -> Any:  # of a constant XLA would make an array
        pooled, pull = jax.vjp(pool, depth, feat)
        return pooled, pull(weights)

    wait = jax.block_until_ready
    return {
        "forward": {
            "PyTorch": lambda: forward(bev_pool_v2, case, grad),
            "JAX": lambda: wait(pool(depth, feat)),
        },
        "and backward": {
            "PyTorch": lambda: forward_and_backward(bev_pool_v2, case, grad),
            "JAX": lambda: wait(both(depth, feat, weights)),
        },
    }


def small(loaded: Any) -> dict[str, Callable[[], object]]:
    """A call that hardly computes."""
    a, b = torch.ones(8), torch.ones(8)
    x, y = to_jax(a), to_jax(b)
    compiled = jax.jit(loaded.ops.my_add)
    plain = jax.jit(lambda x, y: 2 * x + y)
    wait = jax.block_until_ready
    return {
        "PyTorch": lambda: my_add(a, b),
        "JAX": lambda: wait(loaded.ops.my_add(x, y)),
        "JAX, jitted": lambda: wait(compiled(x, y)),
        "XLA's own 2 * x + y": lambda: wait(plain(x, y)),
    }


def kept(name: str, times: Timings) -> dict[str, str]:
    """The figures of the pages about one pass."""
    return {
        f"jax/{name}": figures.seconds(times.median("JAX")),
        f"jax/torch-{name}": figures.seconds(times.median("PyTorch")),
        "jax/of-torch" if name == "pool" else f"jax/{name}-of-torch": (
            f"{times.ratio('JAX', 'PyTorch'):.1f}"
        ),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description="bev_pool_v2 inside JAX against PyTorch")
    parser.add_argument("--rounds", type=int, default=15)
    rounds = parser.parse_args().rounds
    console = Console()
    console.print(machine())
    with tempfile.TemporaryDirectory(prefix="opsmith-benchmark-") as folder:
        out = Path(folder, "jax")
        opsmith.export([bev_pool_v2, my_add], target="jax", out=out, say=None, verify=False)
        loaded = opsmith.load(out)
        table = drawn("Milliseconds", "PyTorch", "JAX", "JAX/PyTorch")
        shown: dict[str, str] = {}
        for size in SIZES:
            for name, contestants in pools(size, loaded).items():
                times: Timings = fastest(contestants, rounds=rounds, calls=8)
                spent = [f"{1000 * times.median(who):.2f}" for who in contestants]
                table.add_row(size, name, *spent, f"{times.ratio('JAX', 'PyTorch'):.2f}")
                if size == next(iter(SIZES)):
                    shown |= kept("pool" if name == "forward" else "both", times)
        console.print(table)
        table = drawn("my_add on 8 numbers", "microseconds")
        times = interleave(small(loaded), rounds=20 * rounds, calls=20)
        for who in times.rounds:
            table.add_row("", who, f"{1e6 * times.median(who):.1f}")
        console.print(table)
    figures.keep(__file__, machine(), shown)


if __name__ == "__main__":
    main()
