"""Camera features pooled into a bird's-eye view: opsmith's operator against its own reference.

At BEVDet's size on nuScenes, six cameras with 16 x 44 pixels, 59 depth bins and 64 channels into
128 x 128 cells, with the points that real geometry gives, and with every point in the grid. The
operator is called as users call it, with all its checks; `unchecked` is the same kernel under a
declaration without value ranges.

    python benchmarks/bev_pool_v2.py
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
import types
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Annotated, Any, get_args, get_origin

import figures
import torch
from rich.console import Console
from rich.table import Table
from sampling import Timings, machine
from torch import Tensor

import opsmith

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from gallery.bev_pool_v2.bev_pool_v2 import bev_pool_v2  # noqa: E402
from gallery.bev_pool_v2.inputs import camera_case, full_case  # noqa: E402

SIZES = {"six cameras": camera_case, "all in the grid": full_case}
Pool = Callable[..., Tensor]


def forward(pool: Pool, case: Mapping[str, Any], grad: Tensor) -> Any:
    with torch.no_grad():
        return pool(**case)


def forward_and_backward(pool: Pool, case: Mapping[str, Any], grad: Tensor) -> Any:
    depth, feat = case["depth"].detach(), case["feat"].detach()
    leaves = depth.requires_grad_(), feat.requires_grad_()
    pooled = pool(*leaves, *list(case.values())[2:])
    return pooled, torch.autograd.grad(pooled, leaves, grad)


PASSES = {"forward": forward, "and backward": forward_and_backward}


def fastest(contestants: Mapping[str, Callable[[], object]], *, rounds: int, calls: int) -> Timings:
    """Time the contestants in turn, each by the fastest of some calls.

    A call takes both cores: an average over calls would measure what else runs on them.
    """
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    for round_ in range(rounds + 1):
        for name, call in contestants.items():
            spent = []
            for _ in range(calls):
                started = time.perf_counter()
                call()
                spent.append(time.perf_counter() - started)
            if round_ > 0:
                seconds[name].append(min(spent))
    return Timings(seconds)


def unchecked(folder: Path) -> opsmith.Operator:
    """Declare the same operator without value ranges, over the same kernel under another name."""
    reference = bev_pool_v2.reference
    name = "bev_pool_v2_unchecked"
    copy = types.FunctionType(reference.__code__, reference.__globals__, name)
    copy.__annotations__ = {
        key: get_args(hint)[0] if get_origin(hint) is Annotated else hint
        for key, hint in reference.__annotations__.items()
    }
    copy.__module__ = __name__
    operator = opsmith.op(f"bev::{name}", copy)
    kernels = ROOT / "gallery" / "bev_pool_v2"
    source = (kernels / "bev_pool_v2.cpp").read_text()
    path = folder / f"{name}.cpp"
    path.write_text(source.replace("bev_pool_v2", name))
    operator.register_kernel("cpu", source=path, flags=[f"-I{kernels}"])
    operator.build()
    return operator


def gradient_of(case: Mapping[str, Any]) -> Tensor:
    frames, channels = case["feat"].shape[0], case["feat"].shape[-1]
    return torch.randn(frames, *case["bev_size"], channels)


def memory(contestant: str, size: str, passes: str) -> None:
    """Print what the resident memory peaks at above inputs and results, in bytes, three times."""
    pool = bev_pool_v2 if contestant == "opsmith" else bev_pool_v2.reference
    if contestant == "torch.compile":
        pool = torch.compile(pool)
    case = SIZES[size]()
    call = partial(PASSES[passes], pool, case, gradient_of(case))
    call()
    print(json.dumps([_peak(call) for _ in range(3)]))


def _peak(call: Callable[[], Any]) -> int:
    import ctypes

    # What malloc keeps for later would hide that it is needed.
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")
    before = _status("VmRSS")
    returned = call()
    peak = _status("VmHWM")
    results, _ = torch.utils._pytree.tree_flatten(returned)
    return peak - before - sum(result.untyped_storage().nbytes() for result in results)


def _status(field: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(field))


def measured_memory(contestant: str, size: str, passes: str) -> float:
    """Run `memory` in a process of its own; the median, in megabytes."""
    command = [sys.executable, __file__, "--memory", contestant, size, passes]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return statistics.median(json.loads(done.stdout.splitlines()[-1])) / 1e6


NAMES = ("reference", "torch.compile", "opsmith")


def drawn(title: str, *columns: str) -> Table:
    table = Table("", "", title=title)
    for column in columns:
        table.add_column(column, justify="right")
    return table


def tables(
    times: Mapping[tuple[str, str], Timings], space: Mapping[tuple[str, str], Mapping[str, float]]
) -> list[Table]:
    """Draw one row for each size and pass."""
    spent = drawn("Milliseconds", *NAMES, "compile/ours", "range check")
    extra = drawn("Memory above inputs and results, MB", *NAMES)
    for (size, passes), timings in times.items():
        share = ""
        if "unchecked" in timings.rounds:
            share = f"{(timings.ratio('opsmith', 'unchecked') - 1) * 100:.0f} %"
        spent.add_row(
            size,
            passes,
            *(f"{timings.median(name) * 1e3:.2f}" for name in NAMES),
            f"{timings.ratio('torch.compile', 'opsmith'):.1f}",
            share,
        )
        if space:
            extra.add_row(size, passes, *(f"{space[size, passes][name]:.2f}" for name in NAMES))
    return [spent, extra] if space else [spent]


def shown(times: Mapping[tuple[str, str], Timings]) -> dict[str, str]:
    """The figures of the pages."""
    forward = [one for one in times.values() if "unchecked" in one.rounds]
    extra = [one.median("opsmith") - one.median("unchecked") for one in forward]
    shares = [100 * (one.ratio("opsmith", "unchecked") - 1) for one in forward]
    found = {
        "pool/range": f"{figures.span(*(one * 1e6 for one in extra))} µs",
        "pool/range-share": f"{figures.span(*shares)} %",
    }
    for name, one in zip(
        ("cameras", "cameras-both", "full", "full-both"), times.values(), strict=True
    ):
        found[f"pool/{name}"] = figures.seconds(one.median("opsmith"))
        found[f"pool/{name}-compiled"] = figures.seconds(one.median("torch.compile"))
        found[f"pool/{name}-faster"] = figures.digits(one.ratio("torch.compile", "opsmith"))
    return found


def show(tables: Sequence[Table], rounds: int, calls: int) -> None:
    """Print tables, and how their figures were taken."""
    console = Console(width=100)
    for table in tables:
        console.print(table)
    how = f"Medians of {rounds} interleaved rounds, each the fastest of {calls} calls."
    console.print(f"{how} {machine()}", soft_wrap=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--calls", type=int, default=10)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--no-memory", action="store_true", help="measure time only")
    parser.add_argument("--memory", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    torch.manual_seed(0)
    if options.memory:
        memory(*options.memory)
        return

    bev_pool_v2.build()
    with tempfile.TemporaryDirectory() as folder:
        without_ranges = unchecked(Path(folder))
    times, space = {}, {}
    for size, arguments in SIZES.items():
        case = arguments()
        grad = gradient_of(case)
        for passes, run in PASSES.items():
            pools: dict[str, Pool] = {
                "reference": bev_pool_v2.reference,
                "torch.compile": torch.compile(bev_pool_v2.reference),
                "opsmith": bev_pool_v2,
            }
            if passes == "forward":
                pools["unchecked"] = without_ranges
            bound = {name: partial(run, pool, case, grad) for name, pool in pools.items()}
            times[size, passes] = fastest(bound, rounds=options.rounds, calls=options.calls)
            if not options.no_memory:
                names = ("reference", "torch.compile", "opsmith")
                space[size, passes] = {name: measured_memory(name, size, passes) for name in names}
    show(tables(times, space), options.rounds, options.calls)
    figures.keep(__file__, machine(), shown(times))


if __name__ == "__main__":
    main()
