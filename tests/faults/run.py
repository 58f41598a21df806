"""Run the catalogue of faults: every wrong operator has to fail, every right one to pass.

python tests/faults/run.py                    the table, with one seed
python tests/faults/run.py --seeds 10         every fault and every right operator, ten times
python tests/faults/run.py --only state       faults whose kind or name has this in it

The columns: one comparison by `torch.allclose` with one shape, `torch.library.opcheck`,
`torch.autograd.gradcheck`, and the rows of `opsmith check`. Who flags the right twin as well
has not found the fault.
"""

import argparse
import importlib
import sys
import time
from collections import Counter
from pathlib import Path

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent / "checks")]

import torch  # noqa: E402
from peers import NAMES, found_by  # noqa: E402

from opsmith import Operator, checks  # noqa: E402

MODULES = ("values", "sizes", "state", "gradients", "native")
# Compilers and runtimes repeat what the others find, and take minutes.
LEFT_OUT = ("opcheck", "compile", "export")


def pairs():
    """Every planted fault."""
    for module in MODULES:
        importlib.import_module(f"faults_{module}")
    return importlib.import_module("pairs").PAIRS


def rows() -> list[str]:
    """The checks that are run."""
    return [
        c.name
        for c in checks.all_checks()
        if c.order < 200 and not c.flag and c.name not in LEFT_OUT
    ]


def found(operator: Operator, seed: int, examples: int = 60) -> list[checks.Row]:
    """The rows that fail."""
    report = checks.run(operator, select=rows(), seed=seed, examples=examples, time_limit=3.0)
    return report.failures


def main() -> int:
    """Print the table; 1 where a fault is missed or a right operator flagged."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    torch.set_num_threads(1)  # a fork has one thread, and would wait for the others
    counts: Counter[str] = Counter()
    missed, flagged, total = [], [], 0
    started = time.monotonic()
    for pair in pairs():
        if options.only not in pair.name and options.only not in pair.kind:
            continue
        total += 1
        peers = found_by(pair.wrong, pair.right)
        counts.update(peers)
        seen: set[str] = set()
        always = True
        for seed in range(options.first, options.first + options.seeds):
            rows = {row.check for row in found(pair.wrong, seed)}
            seen |= rows
            if not rows or (pair.row and pair.row not in rows):
                always = False
                missed.append((pair.name, seed))
            for row in found(pair.right, seed):
                flagged.append((pair.name, seed))
                print(row.explain(), flush=True)
        counts["opsmith check"] += always
        marks = "  ".join(f"{'found' if name in peers else '-':9}" for name in NAMES)
        print(
            f"{pair.kind:20}  {pair.name:45}  {marks}  {', '.join(sorted(seen)) or '-'}", flush=True
        )
    found_counts = ", ".join(f"{name} {counts[name]}" for name in (*NAMES, "opsmith check"))
    print(f"{total} faults, {options.seeds} seeds, {time.monotonic() - started:.0f} s")
    print(f"found: {found_counts}")
    print(f"missed: {missed or 'none'}\nright operators flagged: {flagged or 'none'}")
    return 1 if missed or flagged else 0


if __name__ == "__main__":
    sys.exit(main())
