"""Run the planted faults of CUDA kernels on a GPU, and print how many show there.

The emulation finds each of the faults. On a device many of them give right results, as long as the
threads happen to run in a kind order. compute-sanitizer, which looks at the device's accesses,
finds some. The table says how many, beside the same kernels without a fault, which are right
everywhere.

python benchmarks/gpu/planted_faults.py
"""

# ruff: noqa: E402

from __future__ import annotations

import argparse
import os
import re
import shutil
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "faults" / "in_cuda")]

import on_gpu  # before the modules whose functions it replaces
import torch
from cuda_faults import GROUPS, IN_TORCH, RIGHT

TOOLS = ("memcheck", "racecheck", "initcheck", "synccheck")
#: The faults that nvcc refuses: `on_gpu` compiles these kernels without them.
REFUSED = ("calls_the_host", "functor_of_the_host")
BY_NAME = {group.signature.name: group for group in (*GROUPS, IN_TORCH, RIGHT)}
#: A kernel that has not ended after so many seconds hangs.
SECONDS = 20
CHUNK = 24
#: What a tool says of a kernel, and not of itself.
SAID = re.compile(r"^========= (?!\s|COMPUTE-SANITIZER|ERROR SUMMARY|RACECHECK SUMMARY)", re.M)


def outcome(word: str, rounds: int) -> str:
    """Call the kernel that ``group:name:wrong`` names, and return whether its results are right."""
    group, name, wrong = word.split(":")
    faults = BY_NAME[group]
    count, right, *_ = faults.faults[name]
    x = torch.rand(count, generator=torch.Generator().manual_seed(count)) + 0.25
    last = {"kernel": name} if faults is RIGHT else {"fault": name, "wrong": wrong == "True"}
    for _ in range(rounds):
        try:
            (found,) = on_gpu.called(faults.build, {"x": x, **last}).results
        except Exception as error:
            return f"error: {str(error).splitlines()[0][:100]}"
        if not torch.allclose(found, right(x).to(torch.float32)):
            return "wrong results"
    return "right results"


def call(words: list[str], rounds: int) -> None:
    """Print the outcome of each kernel, until an error leaves the device unusable."""
    for word in words:
        print(f"\n@@ {word}", flush=True)
        signal.alarm(SECONDS if word != words[0] else 10 * SECONDS)  # the first may build
        found = outcome(word, rounds)
        print(f"\n@> {found}", flush=True)
        if found.startswith("error"):
            os._exit(1)


def outcomes(words: list[str], rounds: int, *prefix: str) -> Iterator[tuple[str, str, str]]:
    """Yield each kernel's word, its outcome, and what was printed while it ran."""
    while words:
        command = [*prefix, sys.executable, __file__, "--rounds", str(rounds), "--call", *words]
        said = subprocess.run(command, stdout=-1, stderr=-2, text=True, check=False).stdout
        parts = re.split(r"^@@ ", said, flags=re.M)[1:]
        if not parts:
            yield words[0], f"error: {said[-300:]}", said
            words = words[1:]
        for part in parts:
            word, _, rest = part.partition("\n")
            found = re.search(r"^@> (.*)$", rest, re.M)
            yield word, found[1] if found else "hangs", rest
        words = words[len(parts) :]


def chunks(words: list[str]) -> list[list[str]]:
    """Return the words in pieces that one process takes."""
    return [words[start : start + CHUNK] for start in range(0, len(words), CHUNK)]


def main() -> None:
    """Run all kernels by themselves, then those that neither fail nor hang under each tool."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--call", nargs="*", help=argparse.SUPPRESS)
    parser.add_argument("--rounds", type=int, default=10, help="how often each kernel is called")
    parser.add_argument("--only", nargs="*", choices=BY_NAME, default=list(BY_NAME))
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    options = parser.parse_args()
    if options.call is not None:
        call(options.call, options.rounds)
        return
    words = {
        name: [
            f"{name}:{kernel}:{wrong}"
            for wrong in ((False,) if BY_NAME[name] is RIGHT else (False, True))
            for kernel in BY_NAME[name].faults
            if kernel not in REFUSED
        ]
        for name in options.only
    }
    pool = ThreadPoolExecutor(options.jobs)
    # One process of each group builds its kernels before the others need them.
    list(pool.map(lambda group: list(outcomes(group[:1], 1)), words.values()))
    every = [chunk for group in words.values() for chunk in chunks(group)]
    shown = {}
    for some in pool.map(lambda chunk: list(outcomes(chunk, options.rounds)), every):
        for word, found, _ in some:
            shown[word] = found
            print(f"{word:60} {found}", flush=True)
    program = shutil.which("compute-sanitizer") or "/usr/local/cuda/bin/compute-sanitizer"
    # With the caching allocator every tensor would lie in one large piece of memory.
    os.environ["PYTORCH_NO_CUDA_MEMORY_CACHING"] = "1"
    jobs = [
        (tool, kept)
        for tool in TOOLS
        for chunk in every
        if (kept := [word for word in chunk if shown[word].endswith("results")])
    ]
    found_by: dict[str, set[str]] = {word: set() for word in shown}

    def sanitized(job: tuple[str, list[str]]) -> list[tuple[str, str]]:
        tool, kept = job
        prefix = (program, "--tool", tool, "--destroy-on-device-error", "kernel")
        return [(word, tool) for word, _, said in outcomes(kept, 1, *prefix) if SAID.search(said)]

    for some in pool.map(sanitized, jobs):
        for word, tool in some:
            found_by[word].add(tool)
            print(f"{word:60} {tool}", flush=True)
    for wrong in ("True", "False"):
        some = [word for word in shown if word.endswith(wrong)]
        count = Counter(shown[word].partition(":")[0] for word in some)
        print(
            f"{'with' if wrong == 'True' else 'without'} a fault: {len(some)} kernels; "
            f"{', '.join(f'{number} {what}' for what, number in count.items())}; "
            f"compute-sanitizer says something of {sum(bool(found_by[word]) for word in some)}, of "
            f"{sum(shown[w] == 'right results' and not found_by[w] for w in some)} neither it nor "
            "the results say anything"
        )


if __name__ == "__main__":
    main()
