"""What waiting costs: importing opsmith, building an operator, and loading it when it is built.

Every figure is of a fresh process. `cpp_extension` is the same operator as
`torch.utils.cpp_extension.load` builds it, from a source with PyTorch's own headers.

    python benchmarks/build_time.py
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import figures
from rich.console import Console
from rich.table import Table
from sampling import machine

HERE = Path(__file__).parent

IMPORTS = """
import json, time
start = time.perf_counter()
import torch
between = time.perf_counter()
from opsmith import op
print(json.dumps([between - start, time.perf_counter() - between]))
"""

OPSMITH = """
import json, time
from pathlib import Path
import opsmith
from jaxtyping import Float32
from torch import Tensor

@opsmith.op("opsmith_bench::identity")
def identity(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
    return x.clone()

identity.register_kernel("cpu", source=Path("identity_opsmith.cpp").absolute(), flags=FLAGS)
start = time.perf_counter()
identity.build()
print(json.dumps(time.perf_counter() - start))
"""

CPP_EXTENSION = """
import json, time
from torch.utils.cpp_extension import load
start = time.perf_counter()
load("opsmith_bench_extension", ["identity_extension.cpp"], is_python_module=False)
print(json.dumps(time.perf_counter() - start))
"""


FIRST_OPERATOR = OPSMITH.replace("FLAGS", "()")
# Another kernel and another adapter, where all that operators share is there.
NEXT_OPERATOR = OPSMITH.replace("FLAGS", "('-DNEXT',), strided=True")
# A flag changes the kernel, as an edit does, and leaves the adapter as it is.
CHANGED_KERNEL = OPSMITH.replace("FLAGS", "('-DCHANGED',)")


def fresh(script: str, cache: Path) -> object:
    """Run `script` in a new process, and return what it prints last, as JSON."""
    environment = os.environ | {
        "OPSMITH_CACHE": str(cache / "opsmith"),
        "TORCH_EXTENSIONS_DIR": str(cache / "torch"),
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    }
    done = subprocess.run(
        [sys.executable, "-c", script],
        env=environment,
        cwd=HERE,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=5)
    rounds = parser.parse_args().rounds
    seconds: dict[str, list[float]] = {
        name: []
        for name in (
            "import torch",
            "from opsmith import op, after that",
            "opsmith: build, nothing cached",
            "opsmith: build",
            "cpp_extension: build",
            "opsmith: build, the kernel changed",
            "opsmith: load what is built",
            "cpp_extension: load what is built",
        )
    }
    for _ in range(rounds):
        with tempfile.TemporaryDirectory() as folder:
            cache = Path(folder)
            imports = fresh(IMPORTS, cache)
            (cache / "torch").mkdir()
            scripts = [FIRST_OPERATOR, NEXT_OPERATOR, CPP_EXTENSION, CHANGED_KERNEL]
            loads = [FIRST_OPERATOR, CPP_EXTENSION]
            row = [*imports, *(fresh(script, cache) for script in (*scripts, *loads))]
        for name, value in zip(seconds, row, strict=True):
            seconds[name].append(value)
    table = Table(title="Seconds, median and range")
    table.add_column("")
    for title in ("median", "fastest", "slowest", "of cpp_extension's"):
        table.add_column(title, justify="right")
    for name, values in seconds.items():
        other = name.partition(",")[0].replace("opsmith:", "cpp_extension:")
        ratio = ""
        if name.startswith("opsmith:"):
            pairs = zip(values, seconds[other], strict=True)
            ratio = f"{statistics.median(mine / theirs for mine, theirs in pairs):.2f}"
        row = [statistics.median(values), min(values), max(values)]
        table.add_row(name, *(f"{figure:.3f}" for figure in row), ratio)
    console = Console(width=100)
    console.print(table)
    console.print(f"{rounds} rounds. {machine()}", soft_wrap=True)
    spent = {name: statistics.median(values) for name, values in seconds.items()}
    shown = {
        "build/operator": figures.seconds(spent["opsmith: build"]),
        "build/first": figures.seconds(spent["opsmith: build, nothing cached"]),
        "build/load": figures.seconds(spent["opsmith: load what is built"]),
        "build/import": f"{spent['from opsmith import op, after that']:.1f} s",
    }
    figures.keep(__file__, machine(), shown)


if __name__ == "__main__":
    main()
