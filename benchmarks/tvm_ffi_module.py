"""Measure a function of an exported tvm-ffi module, and its build: `my_add` on 16 floats.

`by hand` is benchmarks/tvm_ffi_module_by_hand.cpp, as one writes it for one dtype and one
dimension, built by `tvm_ffi.cpp.load_inline`. `opsmith` is the function of the exported package;
`module` the one of the library, as other callers have it. Builds are of fresh sources; a first one
also compiles what all modules share.

    python benchmarks/tvm_ffi_module.py
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))
FOLDER = tempfile.TemporaryDirectory(prefix="opsmith-benchmark-")
os.environ["OPSMITH_CACHE"] = f"{FOLDER.name}/opsmith"

import figures  # noqa: E402
import torch  # noqa: E402
import tvm_ffi.cpp  # noqa: E402
from rich.console import Console  # noqa: E402
from rich.table import Table  # noqa: E402
from sampling import interleave, machine  # noqa: E402

import opsmith  # noqa: E402
from gallery.my_add.my_add import my_add  # noqa: E402

CALLS = 200
SOURCE = HERE.parent / "gallery" / "my_add" / "my_add.cpp"


def exported(number: int) -> Any:
    """Export the operator with a kernel that is compiled anew."""
    my_add.register_kernel("cpu", source=SOURCE, flags=(f"-DBUILD={number}",))
    out = Path(FOLDER.name, f"dist{number}")
    return opsmith.export(my_add, target="tvm_ffi", out=out, say=None, verify=False)


def by_hand(number: int) -> Any:
    """Build the source by hand as tvm-ffi's documentation says."""
    return tvm_ffi.cpp.load_inline(
        name="by_hand",
        cpp_sources=f"// {number}\n{(HERE / 'tvm_ffi_module_by_hand.cpp').read_text()}",
        functions=["my_add", "my_add_out"],
        build_directory=f"{FOLDER.name}/by_hand{number}",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=300)
    parser.add_argument("--builds", type=int, default=5)
    options = parser.parse_args()
    console = Console(width=100)

    spent: dict[str, list[float]] = {"opsmith": [], "load_inline": []}
    for number in range(options.builds + 1):
        for name, build in (("opsmith", exported), ("load_inline", by_hand)):
            started = time.perf_counter()
            made = build(number)
            spent[name].append(time.perf_counter() - started)
            if name == "opsmith":
                package = opsmith.load(made.folder)
            else:
                hand = made
    table = Table(title="Seconds of a build, median and range")
    for column in ("", "first", "next", "fastest", "slowest"):
        table.add_column(column, justify="left" if not column else "right")
    for name, (first, *others) in spent.items():
        row = [first, statistics.median(others), min(others), max(others)]
        table.add_row(name, *(f"{seconds:.2f}" for seconds in row))
    pairs = zip(spent["opsmith"][1:], spent["load_inline"][1:], strict=True)
    built = statistics.median(a / b for a, b in pairs)
    console.print(table)
    console.print(f"opsmith / load_inline: {built:.2f}")

    a, out = torch.ones(16), torch.empty(16)
    module = package.runner.module.MODULE  # type: ignore[attr-defined]
    ours, raw, theirs, theirs_out = (
        package.ops.my_add,
        module["my_add"],
        hand.my_add,
        hand.my_add_out,
    )
    contestants: dict[str, Callable[[], object]] = {
        "by hand": partial(theirs, a, a),
        "opsmith": partial(ours, a, a),
        "module": partial(raw, a, a),
        "by hand, out": partial(theirs_out, a, a, out),
        "module, out": partial(raw, a, a, out),
        "opsmith, NumPy": partial(ours, a.numpy(), a.numpy()),
        "by hand, NumPy, out": partial(theirs_out, a.numpy(), a.numpy(), out.numpy()),
        "operator": partial(my_add, a, a),
    }
    times = interleave(contestants, rounds=options.rounds, calls=CALLS)
    table = Table(title="One call of my_add on 16 floats, median")
    for column in ("", "µs", "/ by hand", "/ by hand, out"):
        table.add_column(column, justify="left" if not column else "right")
    for name in contestants:
        ratios = [f"{times.ratio(name, other):.2f}" for other in ("by hand", "by hand, out")]
        table.add_row(name, f"{times.median(name) * 1e6:.2f}", *ratios)
    console.print(table)
    console.print(
        f"{options.rounds} interleaved rounds of {CALLS} calls, {options.builds} builds. "
        f"{machine()}, tvm-ffi {tvm_ffi.__version__}",
        soft_wrap=True,
    )
    shown = {
        "tvm-ffi/module": figures.seconds(times.median("module")),
        "tvm-ffi/hand": figures.seconds(times.median("by hand")),
        "tvm-ffi/of-hand": f"{times.ratio('module', 'by hand'):.2f}",
        "tvm-ffi/package": figures.seconds(times.median("opsmith")),
        "tvm-ffi/package-of-hand": f"{times.ratio('opsmith', 'by hand'):.2f}",
        "tvm-ffi/build": figures.seconds(statistics.median(spent["opsmith"][1:])),
        "tvm-ffi/load-inline": figures.seconds(statistics.median(spent["load_inline"][1:])),
        "tvm-ffi/build-of-load-inline": f"{built:.2f}",
    }
    figures.keep(__file__, machine(), shown)


if __name__ == "__main__":
    main()
