"""Measure opsmith beside its peers, each in an environment of its own, and write the tables.

What is measured is kept in `kept/`, a line for each fault; docs/explanation/why.md has the tables.

    python benchmarks/peers/run.py             everything: an hour on two cores
    python benchmarks/peers/run.py cuda        one part
    python benchmarks/peers/run.py cuda --sets faulty orders    a part of it
    python benchmarks/peers/run.py --table     writes the tables from what is kept
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
BUILD = ROOT / "build" / "peers"
sys.path[:0] = [str(HERE), str(HERE.parent)]

import table  # noqa: E402


def environment(name: str, requirements: tuple[str, ...], python: str = sys.executable) -> Path:
    """Make an environment with these packages below build/, once."""
    folder = BUILD / name
    stamp = folder / "requirements.txt"
    text = "\n".join(requirements)
    if not stamp.exists() or stamp.read_text() != text:
        subprocess.run([python, "-m", "venv", str(folder)], check=True)
        command = [str(folder / "bin" / "python"), "-m", "pip", "install", "-q", *requirements]
        subprocess.run(command, cwd=ROOT, check=True)
        stamp.write_text(text)
    return folder


def cuda(sets: list[str]) -> None:
    """Measure the planted CUDA faults."""
    import in_cuda

    peer = environment("sentryward", in_cuda.REQUIREMENTS)
    _measured("cuda", in_cuda.results(peer, BUILD / "cuda", sets))


def triton(_: list[str]) -> None:
    """Measure the Triton kernels."""
    import in_triton

    triton_viz = environment("triton-viz", in_triton.TRITON_VIZ)
    ttsem = environment("ttsem", in_triton.TTSEM)
    pip = [str(ttsem / "bin" / "python"), "-m", "pip", "install", "-q", "--no-deps"]
    if not list(ttsem.glob("lib/*/site-packages/ttsem")):
        subprocess.run([*pip, "--ignore-requires-python", in_triton.TTSEM_ITSELF], check=True)
    _measured("triton", in_triton.results(triton_viz, ttsem, BUILD / "triton"))


def judge(_: list[str]) -> None:
    """Judge pygpubench's exploits."""
    import in_judge

    _measured("judge", in_judge.results(BUILD / "pygpubench"))


def python(_: list[str]) -> None:
    """Measure allclose, opcheck and gradcheck: tests/faults/run.py keeps their figures."""
    command = [sys.executable, str(ROOT / "tests" / "faults" / "run.py")]
    subprocess.run(command, env={**os.environ, "OPSMITH_KEEP_FIGURES": "1"}, check=True)
    figures = [sys.executable, str(ROOT / "benchmarks" / "figures.py")]
    subprocess.run(figures, check=True)


def _measured(part: str, lines: Iterator[dict[str, Any]]) -> None:
    """Keep the lines of a part, one after the other; one of the same fault is replaced."""
    kept = {(one["set"], one.get("fault")): one for one in table.kept(part)}
    for line in lines:
        print(json.dumps(line), flush=True)
        kept[line["set"], line.get("fault")] = line
        table.keep(part, list(kept.values()))


PARTS = {"cuda": cuda, "triton": triton, "judge": judge, "python": python}


def main() -> None:
    """Measure, keep, and write the tables."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("parts", nargs="*", help="all of them by default")
    parser.add_argument("--sets", nargs="*", default=[], help="of the CUDA faults")
    parser.add_argument("--table", action="store_true", help="only write the tables")
    chosen = parser.parse_args()
    if not chosen.table:
        for part in chosen.parts or PARTS:
            started = time.monotonic()
            PARTS[part](chosen.sets)
            print(f"{part}: {time.monotonic() - started:.0f} s on {platform.machine()}", flush=True)
    table.write()


if __name__ == "__main__":
    main()
