"""How fast an operator is: every kernel and runtime beside the reference, on the served sizes.

::

    benchmark = opsmith.bench.run([my_op])
    print(benchmark.figures[1].speedup)

The clock is in this process, what is timed in another.
"""

from __future__ import annotations

from opsmith.bench.figures import Benchmark, Figure
from opsmith.bench.runner import run

__all__ = ["Benchmark", "Figure", "run"]
