"""Benchmark operators: time every kernel and runtime against the reference, on registered sizes.

::

    benchmark = opsmith.bench.run([my_op])
    print(benchmark.figures[1].speedup)

The clock is in this process, and the timed calls are in another process.
"""

from opsmith.bench.figures import Benchmark, Figure, FileError
from opsmith.bench.inputs import NothingToTimeError
from opsmith.bench.runner import NoSuchContestantError, run
from opsmith.checks.isolation.import_location import NotLocatedError

__all__ = [
    "Benchmark",
    "Figure",
    "FileError",
    "NoSuchContestantError",
    "NotLocatedError",
    "NothingToTimeError",
    "run",
]
