"""Describe this machine: its caches, and how fast it copies and multiplies during this run.

Both speeds are measured with PyTorch, in the process that runs the reference and no kernel: a copy
from one tensor to another, and ``torch.mm`` of square matrices.
"""

from __future__ import annotations

import os
import platform
import re
import statistics
from dataclasses import dataclass, field
from pathlib import Path

from opsmith.bench.timer import Stopwatch
from opsmith.kernels import HOST

_CACHES = Path("/sys/devices/system/cpu/cpu0/cache")
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20}
#: To evict arguments from the caches, twice the size of the last cache is written, within these
#: limits.
_FLUSH = 16 << 20, 96 << 20
#: Bytes of the copy in memory, bytes of the copy in a core's cache, and the side of the matrices.
_FAR, _NEAR, _SIDE = 64 << 20, 1 << 19, 512
_TIMES = {"far": 2, "near": 400, "multiply": 4}
#: No kernel moves bytes faster than this multiple of the fastest copy near a core: a kernel that
#: only reads may be as fast as two such copies.
_SLACK = 2.0


@dataclass
class Machine:
    """The machine, and its speeds round by round.

    Attributes:
        cores: number of cores that this process may use.
        caches: the sizes of the data caches in bytes, the nearest first.
        load: number of threads ready to run, on average over the minute before.
        far: bytes per second of a copy in memory.
        near: bytes per second of a copy in a cache.
        multiply: operations per second of a matrix product; a multiply-add counts as two.
    """

    processor: str
    cores: int
    caches: tuple[int, ...]
    load: float = 0.0
    dtype: str = "float32"
    far: list[float] = field(default_factory=list)
    near: list[float] = field(default_factory=list)
    multiply: list[float] = field(default_factory=list)

    @property
    def flush(self) -> int:
        """The number of bytes to write so that no argument is in a cache."""
        least, most = _FLUSH
        return max(least, min(most, 2 * max(self.caches, default=least)))

    def least_seconds(self, count: int) -> float:
        """Return the shortest possible time for moving this many bytes."""
        return count / (_SLACK * max(*self.near, *self.far))

    @property
    def bandwidth(self) -> float:
        """Bytes per second of a copy in memory: the median over the rounds."""
        return statistics.median(self.far)

    @property
    def rate(self) -> float:
        """Operations per second of a matrix product: the median over the rounds."""
        return statistics.median(self.multiply)

    def measure(self, stopwatch: Stopwatch, device: str) -> None:
        """Measure the speeds for one more round."""
        self.far.append(2 * _FAR / _seconds(stopwatch, "copy", _FAR, "uint8", device, "far"))
        self.near.append(2 * _NEAR / _seconds(stopwatch, "copy", _NEAR, "uint8", device, "near"))
        seconds = _seconds(stopwatch, "multiply", _SIDE, self.dtype, device, "multiply")
        self.multiply.append(2 * _SIDE**3 / seconds)


def describe() -> Machine:
    """Return a description of this machine, without any measured speed."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.is_file():
        lines = cpuinfo.read_text().splitlines()
        model = next((x.partition(":")[2].strip() for x in lines if "model name" in x), model)
    return Machine(model, len(os.sched_getaffinity(0)), _caches(), os.getloadavg()[0])


def _caches() -> tuple[int, ...]:
    found = []
    for folder in sorted(_CACHES.glob("index*")):
        try:
            kind = (folder / "type").read_text().strip()
            size = re.fullmatch(r"(\d+)([KM]?)", (folder / "size").read_text().strip())
        except OSError:
            continue
        if kind != "Instruction" and size is not None:
            found.append(int(size[1]) * _UNITS[size[2]])
    return tuple(found)


def _seconds(
    stopwatch: Stopwatch, work: str, size: int, dtype: str, device: str, key: str
) -> float:
    """Return the time of one copy or product, repeated until the cost of messages is negligible."""
    times = _TIMES[key] if device == HOST else 50 * _TIMES[key]
    return stopwatch.machine(work, size, dtype, times, device) / times
