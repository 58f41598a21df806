"""Measuring several things side by side, on a machine that others may be using too."""

from __future__ import annotations

import os
import platform
import random
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

import torch


@dataclass(frozen=True)
class Timings:
    """Seconds per call of each contestant, round by round.

    A round times every contestant once, in an order of its own, so that whatever slows the machine
    down slows all of them.
    """

    rounds: Mapping[str, list[float]]

    def median(self, name: str) -> float:
        """Return the median seconds per call."""
        return statistics.median(self.rounds[name])

    def ratio(self, name: str, other: str) -> float:
        """Return the median over all rounds of `name`'s time divided by `other`'s."""
        pairs = zip(self.rounds[name], self.rounds[other], strict=True)
        return statistics.median(mine / theirs for mine, theirs in pairs)


def interleave(
    contestants: Mapping[str, Callable[[], object]], *, rounds: int, calls: int
) -> Timings:
    """Time the contestants in turn.

    Args:
        contestants: what to call, by name.
        rounds: how often each is timed; a first round more is thrown away.
        calls: how many calls one timing averages over. Short timings and many rounds are best:
            a timing as long as the scheduler's slice is often interrupted, and always the same one.
    """
    seconds: dict[str, list[float]] = {name: [] for name in contestants}
    shuffle = random.Random(0).shuffle
    turns = list(contestants.items())
    for round_ in range(rounds + 1):
        shuffle(turns)
        for name, call in turns:
            started = time.perf_counter()
            for _ in range(calls):
                call()
            if round_ > 0:
                seconds[name].append((time.perf_counter() - started) / calls)
    return Timings(seconds)


def machine() -> str:
    """Say in one line what this was measured on."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        lines = cpuinfo.read_text().splitlines()
        model = next((x.partition(":")[2].strip() for x in lines if "model name" in x), model)
    cores = len(os.sched_getaffinity(0))
    threads = torch.get_num_threads()
    return (
        f"{model}, {cores} cores, {threads} threads; Python {platform.python_version()}, "
        f"PyTorch {torch.__version__}"
    )
