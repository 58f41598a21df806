"""Run the catalogue of faults: every wrong operator has to fail, every right one to pass.

python tests/faults/run.py                    the table, with one seed
python tests/faults/run.py --seeds 10         every fault and every right operator, ten times;
                                              all that finds a fault is looked for with seed 0
python tests/faults/run.py --modules native   faults of C++ kernels; cuda, values, sizes, …
python tests/faults/run.py --only state       faults whose kind or name has this in it

The columns: one comparison by `torch.allclose` with one shape, `torch.library.opcheck`,
`torch.autograd.gradcheck`, and the rows of `opsmith check`. Who flags the right twin as well
has not found the fault. Those of CUDA kernels are looked for on the CPU, in the emulation that the
check `cuda-on-cpu` runs, and by no one else: without a GPU the others cannot call such a kernel.
"""

import argparse
import importlib
import itertools
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE / "in_cuda"), str(HERE.parents[1] / "benchmarks")]
sys.path.append(str(HERE.parent / "emulators" / "cuda"))

import figures  # noqa: E402
import torch  # noqa: E402
from peers import NAMES, found_by  # noqa: E402
from sampling import machine  # noqa: E402

from opsmith import checks  # noqa: E402

MODULES = (
    "values",
    "neighbours",
    "selections",
    "sizes",
    "lists",
    "samples",
    "state",
    "held",
    "gradients",
    "dispatch",
    "endings",
    "native",
    "narrow",
)
EVERYTHING = (*MODULES, "cuda")
CUDA = "cuda"
# Compilers and runtimes mostly repeat what the others find, and take minutes.
LEFT_OUT = ("opcheck", "compile", "export")
#: Kinds whose faults may damage the process, or end it.
HANGING = "exceptions and hangs"
APART = ("memory", "threads", "what a call leaves", HANGING)
#: Kinds that nothing but a compiler finds.
COMPILED = "sizes that tracing fixes"
#: Kernels that are built twice more, and called with more than 2**31 elements.
NARROW = "narrow indices"
#: What looks for faults of these kinds, where a pair does not name a check itself.
CHECKS = {
    "values": "reference",
    "neighbours": "reference",
    "selections": "reference",
    "overflow": "reference",
    "sizes": "reference",
    "lists": "reference",
    "layouts": "layouts",
    "dtypes": "reference",
    "parameters": "reference",
    "state": "statefulness",
    "mutation": "mutation",
    "gradients": "gradient",
    "parallel dimensions": "parallel-dims",
    "fake kernels": "fake",
    "memory": "bounds",
    "threads": "schedules",
    "ways to call": "reference",
    HANGING: "reference",
}


def pairs(modules: Sequence[str] = MODULES) -> list:
    """Every planted fault, or those of some modules."""
    for module in modules:
        importlib.import_module(f"faults_{module}")
    return importlib.import_module("pairs").PAIRS


def rows() -> list[str]:
    """The checks that are run."""
    return [
        c.name
        for c in checks.all_checks()
        if c.order < 200 and not c.flag and c.name not in LEFT_OUT
    ]


def failures(several: list, seed: int, everything: bool) -> dict[str, list[checks.Row]]:
    """The rows that fail, and those that do not run because of them, by operator.

    Args:
        several: pairs of one kind. Starting a run takes seconds, so they share one; but a wrong
            operator that may damage memory, end or hang runs alone, so that it harms no other.
        seed: decides the samples.
        everything: whether a wrong operator goes through all checks, and not only through the one
            that is there for its fault. A right one goes through all of them in any case.
    """
    kind = several[0].kind
    select = [*rows(), *{pair.row for pair in several} & set(LEFT_OUT)]
    right = dict.fromkeys(pair.right for pair in several)
    found = _failures(list(right), select, seed, kind)
    for together in [[pair] for pair in several] if kind in APART else [several]:
        found |= _of_wrong(together, select, seed, everything)
    return found


def _of_wrong(
    several: list, select: list[str], seed: int, everything: bool
) -> dict[str, list[checks.Row]]:
    kind = several[0].kind
    if everything:
        return _failures([pair.wrong for pair in several], select, seed, kind)
    found: dict[str, list[checks.Row]] = {}
    by_check = sorted(several, key=expected)
    for check, together in itertools.groupby(by_check, key=expected):
        found |= _failures([pair.wrong for pair in together], [check], seed, kind)
    unseen = [pair.wrong for pair in several if not pair.row and not found[pair.wrong.name]]
    return found | _failures(unseen, select, seed, kind)


def expected(pair: Any) -> str:
    """The check that is there for a fault."""
    return pair.row or CHECKS[pair.kind]


def finders(pair: Any) -> list[str]:
    """Every check that has to find a fault, the one that is there for it first."""
    return list(dict.fromkeys((expected(pair), *pair.said)))


def _failures(
    operators: list, select: list[str], seed: int, kind: str
) -> dict[str, list[checks.Row]]:
    if not operators:
        return {}
    limit = 3.0 if kind == HANGING else 60.0
    report = checks.run(operators, select=select, seed=seed, time_limit=limit)
    # A row that does not run, as another one that it rests on fails, misses nothing.
    said = [row for row in report.rows if row.status in ("failed", "not run")]
    return {o.name: [r for r in said if r.operator == o.name] for o in operators}


def emulated(only: str, seeds: Sequence[int]) -> tuple[int, list, list]:
    """Print what is found of the faults of CUDA: how many there are, the missed, the flagged."""
    planted = importlib.import_module("cuda_faults")
    missed, flagged, count = [], [], 0
    for group in (*planted.GROUPS, planted.IN_TORCH, planted.RIGHT):
        names = [name for name in group.faults if only in name or only in CUDA]
        for name, seed in itertools.product(names, seeds):
            phase = planted.phase_of(seed, (0xFF, 0x7F)[seed % 2])
            if said := group.said_of_right(name, phase):
                flagged.append((name, seed, said))
            if group is not planted.RIGHT and (said := group.missed(name, phase)):
                missed.append((name, seed, said))
        if group is not planted.RIGHT:
            count += len(names)
            for name in names:
                seen = name not in {one for one, *_ in missed}
                show(CUDA, name.replace("_", " "), (), "cuda-on-cpu" if seen else "")
    return count, missed, flagged


def show(kind: str, name: str, peers: Sequence[str], found: str) -> None:
    """Print a line of the table."""
    marks = "  ".join(f"{'found' if peer in peers else '-':9}" for peer in NAMES)
    print(f"{kind:20}  {name:45}  {marks}  {found or '-'}", flush=True)


def main() -> int:
    """Print the table; 1 where a fault is missed or a right operator flagged."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--only", default="")
    parser.add_argument("--modules", nargs="*", default=EVERYTHING, choices=EVERYTHING)
    options = parser.parse_args()
    torch.set_num_threads(1)  # a fork has one thread, and would wait for the others
    modules = [module for module in options.modules if module in MODULES]
    in_python = {pair.name for pair in pairs([name for name in modules if name != "native"])}
    chosen = [p for p in pairs(modules) if options.only in p.name or options.only in p.kind]
    seeds = range(options.first, options.first + options.seeds)
    counts: Counter[str] = Counter()
    of_python: Counter[str] = Counter()
    missed, flagged = [], []
    started = time.monotonic()
    for _, group in itertools.groupby(chosen, key=lambda pair: pair.kind):
        several = list(group)
        by_seed = {seed: failures(several, seed, everything=not seed) for seed in seeds}
        for pair in several:
            peers = found_by(pair.wrong, pair.right)
            counts.update(peers)
            seen: set[str] = set()
            always = True
            for seed, failed in by_seed.items():
                rows = {row.check: row.status for row in failed[pair.wrong.name]}
                seen |= {name for name, status in rows.items() if status == "failed"}
                if "failed" not in rows.values() or (pair.row and pair.row not in rows):
                    always = False
                    missed.append((pair.name, seed))
                for row in failed[pair.right.name]:
                    flagged.append((pair.name, seed))
                    print(row.explain(), flush=True)
            counts["opsmith check"] += always
            if pair.name in in_python:
                of_python.update([*peers, *["opsmith check"] * always])
            show(pair.kind, pair.name, peers, ", ".join(sorted(seen)))
    count = len(chosen)
    if CUDA in options.modules:
        number, unseen, wrongly = emulated(options.only, seeds)
        count += number
        counts["opsmith check"] += number - len({name for name, *_ in unseen})
        missed += unseen
        flagged += wrongly
    found = ", ".join(f"{name} {counts[name]}" for name in (*NAMES, "opsmith check"))
    print(f"{count} faults, {options.seeds} seeds, {time.monotonic() - started:.0f} s")
    print(f"found: {found}")
    print(f"missed: {missed or 'none'}\nright operators flagged: {flagged or 'none'}")
    if not options.only and len(modules) == len(MODULES):
        figures.keep(__file__, machine(), shown(of_python))
    return 1 if missed or flagged else 0


def shown(counts: Counter[str]) -> dict[str, str]:
    """The figures of the pages; what allclose finds varies, so its range goes over all runs."""
    before = map(float, figures.kept()["faults/allclose"].split("–"))
    return {
        "faults/allclose": figures.span(*before, counts["allclose"]),
        "faults/opcheck": str(counts["opcheck"]),
        "faults/gradcheck": str(counts["gradcheck"]),
        "faults/found": str(counts["opsmith check"]),
    }


if __name__ == "__main__":
    sys.exit(main())
