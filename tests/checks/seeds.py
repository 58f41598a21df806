"""Run right operators over many seeds: no row may fail.

    python tests/checks/seeds.py                     40 seeds of the checks that compile nothing
    python tests/checks/seeds.py --compilers         opcheck, compile and export too
    python tests/checks/seeds.py --seeds 5 median    operators whose names contain "median"

The suite runs one seed of each; this is what is run by hand after a change to the checks.
"""

import argparse
import importlib
import sys
import time
from collections import Counter
from pathlib import Path

from opsmith import Operator, checks
from opsmith.checks import all_checks

_HERE = Path(__file__).parent
_COMPILERS = ("opcheck", "compile", "export")
_GALLERY = ("bev_pool_v2", "crop_paste", "deform_conv2d", "identity_conv", "my_add", "numpy_sin")
_SOUND = ("sound", "sound_numbers", "sound_shapes", "sound_native")


def main() -> int:
    """Print each row that fails, and the figure at the end."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="parts of operators' names")
    parser.add_argument("--seeds", type=int, default=40)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--examples", type=int, default=30)
    parser.add_argument("--compilers", action="store_true", help=", ".join(_COMPILERS))
    parser.add_argument("--only", action="append", help="this check alone; may be repeated")
    options = parser.parse_args()
    select = options.only or [
        one.name
        for one in all_checks()
        if one.order < 200 and not one.flag and (options.compilers or one.name not in _COMPILERS)
    ]
    operators = [
        operator
        for operator in _operators()
        if not options.names or any(name in operator.name for name in options.names)
    ]
    counts: Counter[str] = Counter()
    started = time.monotonic()
    for seed in range(options.first, options.first + options.seeds):
        for operator in operators:
            report = checks.run(
                operator, select=select, seed=seed, examples=options.examples, isolate=False
            )
            counts.update(row.status for row in report.rows)
            for row in report.failures:
                print(f"seed {seed}: {row.explain()}\n", flush=True)
        spent = time.monotonic() - started
        print(f"seed {seed}: {dict(counts)}, {spent:.0f} s", flush=True)
    print(f"{len(operators)} operators, {options.seeds} seeds: {counts['failed']} rows failed")
    return 1 if counts["failed"] or not counts["passed"] else 0


def _operators() -> list[Operator]:
    sys.path[:0] = [str(_HERE), str(_HERE.parents[1])]
    found = [one for name in _SOUND for one in importlib.import_module(name).OPERATORS]
    for name in _GALLERY:
        module = importlib.import_module(f"gallery.{name}.{name}")
        found += [value for value in vars(module).values() if isinstance(value, Operator)]
    return list(dict.fromkeys(found))


if __name__ == "__main__":
    sys.exit(main())
