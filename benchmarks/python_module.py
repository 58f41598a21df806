"""What a call of an exported Python module costs: `my_add` on 16 floats.

`by hand` is benchmarks/python_module_by_hand.cpp, as one writes it with nanobind for one dtype and
one dimension; `numpy` is `2 * a + b` as a ufunc call, `numpy.add(a, b)`: an addition alone, which
nobody's binding can come near to. `operator` is the operator in PyTorch, with the same kernel.

    python benchmarks/python_module.py
"""

from __future__ import annotations

import argparse
import importlib.util
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import nanobind
import numpy as np
import torch
from rich.console import Console
from rich.table import Table
from sampling import interleave, machine

import opsmith

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE.parent))

from gallery.my_add.my_add import my_add  # noqa: E402

CALLS = 200


def by_hand(folder: Path) -> ModuleType:
    """Compile and load python_module_by_hand.cpp as nanobind's documentation says."""
    include = Path(nanobind.include_dir())
    library = folder / f"by_hand{sysconfig.get_config_var('EXT_SUFFIX')}"
    subprocess.run(
        [
            *("g++", "-O3", "-std=c++17", "-shared", "-fPIC", "-fvisibility=hidden", "-DNDEBUG"),
            *("-DNB_COMPACT_ASSERTIONS", "-fno-strict-aliasing", "-ffunction-sections"),
            *(f"-I{include}", f"-I{include.parent / 'ext/robin_map/include'}"),
            f"-I{sysconfig.get_paths()['include']}",
            str(HERE / "python_module_by_hand.cpp"),
            str(Path(nanobind.source_dir()) / "nb_combined.cpp"),
            *("-Wl,--gc-sections", "-Wl,-s", "-o", str(library)),
        ],
        check=True,
    )
    spec = importlib.util.spec_from_file_location("by_hand", library)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=300)
    rounds = parser.parse_args().rounds
    a, b = np.ones(16, np.float32), np.ones(16, np.float32)
    tensors = torch.from_numpy(a), torch.from_numpy(b)
    with tempfile.TemporaryDirectory(prefix="opsmith-benchmark-") as folder:
        opsmith.export(my_add, target="python", out=Path(folder, "dist"), say=None, verify=False)
        ours: Any = opsmith.load(Path(folder, "dist")).ops.my_add
        hand = by_hand(Path(folder))
        contestants: dict[str, Callable[[], object]] = {
            "opsmith": partial(ours, a, b),
            "by hand": partial(hand.my_add, a, b),
            "numpy.add": partial(np.add, a, b),
            "opsmith, b=b": partial(ours, a, b=b),
            "opsmith, tensors": partial(ours, *tensors),
            "by hand, tensors": partial(hand.my_add, *tensors),
            "operator, tensors": partial(my_add, *tensors),
        }
        times = interleave(contestants, rounds=rounds, calls=CALLS)
    table = Table(title="One call of my_add on 16 floats, median")
    for column in ("", "µs", "/ by hand", "/ numpy.add"):
        table.add_column(column, justify="left" if not column else "right")
    for name in contestants:
        ratios = [f"{times.ratio(name, other):.2f}" for other in ("by hand", "numpy.add")]
        table.add_row(name, f"{times.median(name) * 1e6:.2f}", *ratios)
    console = Console(width=100)
    console.print(table)
    console.print(f"{rounds} interleaved rounds of {CALLS} calls. {machine()}", soft_wrap=True)


if __name__ == "__main__":
    main()
