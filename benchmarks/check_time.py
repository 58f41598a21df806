"""Measure what a check costs: nothing cached, again, and from a save to its first verdict.

Every figure is a ratio, to `import torch` in a fresh process and to one compilation of the kernel
by hand, which are measured right before. CPU seconds of all processes say what a check costs where
others use the machine too; wall-clock seconds, how long one waits on an idle one.

    python benchmarks/check_time.py [NAME ...]
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import figures
from rich.console import Console
from rich.table import Table
from sampling import machine

ROOT = Path(__file__).parents[1]
OPSMITH = [sys.executable, "-m", "opsmith"]
QUICK = ("--quick",)
#: By name: the file, and the options of its check.
OPERATORS = {
    "template": (None, QUICK),
    "bev_pool_v2": (ROOT / "gallery/bev_pool_v2/bev_pool_v2.py", QUICK),
    "swiglu": (ROOT / "gallery/swiglu/swiglu.py", QUICK),
    "soft_dtw": (ROOT / "examples/todays_operators/soft_dtw.py", QUICK),
    "identity_conv (CUDA alone)": (
        ROOT / "gallery/identity_conv/identity_conv.py",
        ("--check", "cuda-on-cpu", "--examples", "8"),
    ),
}
COMPILE = """
import json, subprocess, sys, time
from opsmith.kernels.toolchain.cmake import RELEASE, options_of
from opsmith.kernels.toolchain.compilers import find_toolset
from opsmith.sources.importing import import_all
source = next(k.source for o in import_all(sys.argv[1:2]) for k in o.kernels.values() if k.source)
unit, tools = source.language.unit(source), find_toolset("")
unit.write()
words = [f"-I{unit.written}", *options_of(unit, tools)]
print(json.dumps([tools.compiler.path, *RELEASE, *words, "-c", str(unit.path), "-o", sys.argv[2]]))
"""


@dataclass(frozen=True)
class Cost:
    """Seconds of a command: on the clock, and of all processors."""

    wall: float
    cpu: float


def cost(command: Sequence[str], cache: Path) -> Cost:
    """Run a command, and return what it cost; what it says matters only where it fails."""
    before, started = _cpu(), time.perf_counter()
    environment = os.environ | {"OPSMITH_CACHE": str(cache)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    # 5: no device of the kernel is here.
    if done.returncode not in (0, 5):
        raise SystemExit(f"{' '.join(command)}:\n{done.stdout}{done.stderr}")
    return Cost(time.perf_counter() - started, _cpu() - before)


def _cpu() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def by_hand(file: Path, folder: Path, cache: Path) -> Cost:
    """Compile the kernel as it is compiled by hand; its headers are written before."""
    asked = [sys.executable, "-c", COMPILE, str(file), str(folder / "by_hand.o")]
    environment = os.environ | {"OPSMITH_CACHE": str(cache)}
    done = subprocess.run(asked, env=environment, capture_output=True, text=True, check=True)
    return cost(json.loads(done.stdout.splitlines()[-1]), cache)


def saves(file: Path, cache: Path, times: int) -> list[float]:
    """Edit a kernel under ``--watch``, and return the seconds until `reference` has its verdict."""
    source = file.with_suffix(".cpp")
    text = source.read_text()
    process = subprocess.Popen(
        [*OPSMITH, "check", str(file), "--quick", "--watch"],
        env=os.environ | {"OPSMITH_CACHE": str(cache)},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None

    def read_until(word: str) -> float:
        for line in process.stdout or ():
            if word in line:
                return time.perf_counter()
        raise SystemExit("the check under --watch ended")

    found = []
    try:
        read_until("watching ")
        for number in range(times):
            time.sleep(5.0)  # it imports what rows need, and nobody saves twice in five seconds
            saved = time.perf_counter()
            source.write_text(f"{text}\n// save {number} of {time.time()}\n")
            found.append(read_until(" reference ") - saved)
            read_until("watching ")
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return found


def main() -> None:
    """Measure, print a table, and keep the figures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("names", nargs="*", default=list(OPERATORS))
    names = parser.parse_args().names
    table = Table(title="--quick: CPU seconds, and as ratios to import torch | one compilation")
    for column in ("", "import torch", "kernel by hand", "nothing cached", "again"):
        table.add_column(column, justify="right" if column else "left")
    shown = {}
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        subprocess.run([*OPSMITH, "new", "my_op", "--dir", place], check=True, capture_output=True)
        template = folder / "my_op" / "my_op.py"
        for name in names:
            file, options = OPERATORS[name]
            file, cache = file or template, folder / "cache"
            shutil.rmtree(cache, ignore_errors=True)
            torch = cost([sys.executable, "-c", "import torch"], cache)
            check = [*OPSMITH, "check", "--seed", "0", str(file), *options]
            cold, warm = cost(check, cache), cost(check, cache)
            hand = by_hand(file, folder, cache)
            row = [f"{torch.cpu:.2f}", f"{hand.cpu:.2f}"]
            for own in (cold, warm):
                row.append(
                    f"{own.cpu:.1f}: {own.cpu / torch.cpu:.1f} | {own.cpu / hand.cpu:.1f}"
                    f" (clock {own.wall:.1f}: {own.wall / torch.wall:.1f} | "
                    f"{own.wall / hand.wall:.1f})"
                )
            table.add_row(name, *row)
            if file == template:
                shown["check/first"] = figures.digits(cold.cpu / torch.cpu)
                shown["check/again"] = figures.digits(warm.cpu / torch.cpu)
        torch = cost([sys.executable, "-c", "import torch"], cache)
        hand = by_hand(template, folder, cache)
        saved = min(saves(template, cache, 3))
    shown["check/save"] = figures.digits(saved / torch.wall)
    shown["check/save-of-compile"] = figures.digits(saved / hand.wall)
    console = Console(width=150)
    console.print(table)
    console.print(
        f"A save under --watch --quick, until reference has its verdict: {saved:.1f} s, "
        f"{saved / torch.wall:.1f} of import torch, {saved / hand.wall:.1f} of one compilation "
        f"by hand. {machine()}, load {os.getloadavg()[0]:.1f}",
        soft_wrap=True,
    )
    if "template" in names:
        figures.keep(__file__, f"{machine()}, load {os.getloadavg()[0]:.0f}", shown)


if __name__ == "__main__":
    main()
