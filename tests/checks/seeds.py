"""Run right operators over many seeds: no row may fail.

    python tests/checks/seeds.py                     40 seeds of the checks that compile nothing
    python tests/checks/seeds.py --compilers         opcheck, compile and export too
    python tests/checks/seeds.py --seeds 5 median    operators whose names contain "median"
    python tests/checks/seeds.py --sample 24         the gallery, and 24 operators of all kinds
    python tests/checks/seeds.py --seeds 20:40       the second half, beside another process

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
#: What compiles for long, and says the same for every seed.
_LONG = (*_COMPILERS, "cuda-on-cpu")
_GALLERY = (
    "bev_pool_v2",
    "crop_paste",
    "deform_conv2d",
    "identity_conv",
    "ms_deform_attn",
    "my_add",
    "numpy_sin",
)
_SOUND = ("sound", "sound_numbers", "sound_shapes", "sound_native", "sound_kinds")


def main() -> int:
    """Print each row that fails, and the figure at the end."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*", help="parts of operators' names")
    parser.add_argument("--seeds", type=_seeds, default=range(40), help="how many, or FIRST:END")
    parser.add_argument("--sample", type=int, help="how many operators beside the gallery's")
    parser.add_argument("--examples", type=int, default=30)
    parser.add_argument("--compilers", action="store_true", help=", ".join(_LONG))
    parser.add_argument("--only", action="append", help="this check alone; may be repeated")
    options = parser.parse_args()
    select = options.only or [
        one.name
        for one in all_checks()
        if one.order < 200 and not one.flag and (options.compilers or one.name not in _LONG)
    ]
    gallery, sound = _gallery(), _sound()
    if options.sample is not None:
        # Evenly, as operators of a kind stand together.
        sound = [sound[k * len(sound) // options.sample] for k in range(options.sample)]
    operators = [
        operator
        for operator in [*gallery, *sound]
        if not options.names or any(name in operator.name for name in options.names)
    ]
    print(f"checks: {', '.join(select)}")
    print(f"operators: {', '.join(operator.name for operator in operators)}", flush=True)
    counts: Counter[str] = Counter()
    for seed in options.seeds:
        started = time.process_time()
        for operator in operators:
            report = checks.run(
                operator, select=select, seed=seed, examples=options.examples, isolate=False
            )
            counts.update(row.status for row in report.rows)
            for row in report.failures:
                print(f"seed {seed}: {row.explain()}\n", flush=True)
        spent = time.process_time() - started
        print(f"seed {seed}: {dict(counts)}, {spent:.0f} s of this process", flush=True)
    print(
        f"{len(operators)} operators, {len(select)} checks, {len(options.seeds)} seeds: "
        f"{counts['failed']} of {counts['failed'] + counts['passed']} rows failed"
    )
    return 1 if counts["failed"] or not counts["passed"] else 0


def _seeds(text: str) -> range:
    first, _, end = text.rpartition(":")
    return range(int(first or 0), int(end))


def _sound() -> list[Operator]:
    sys.path[:0] = [str(_HERE), str(_HERE.parents[1])]
    found = [one for name in _SOUND for one in importlib.import_module(name).OPERATORS]
    return list(dict.fromkeys(found))


def _gallery() -> list[Operator]:
    sys.path[:0] = [str(_HERE.parents[1])]
    modules = [importlib.import_module(f"gallery.{name}.{name}") for name in _GALLERY]
    found = [one for module in modules for one in vars(module).values()]
    return list(dict.fromkeys(one for one in found if isinstance(one, Operator)))


if __name__ == "__main__":
    sys.exit(main())
