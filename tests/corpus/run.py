"""Run every row over a corpus of right operators that others wrote: no row may fail.

    python tests/corpus/run.py draft                      declarations of PyTorch's operators
    python tests/corpus/run.py check                      the operators that have no result yet
    python tests/corpus/run.py check --seeds 0 1 --part 2/4 --kinds kernel
    python tests/corpus/run.py check sort median --again  operators whose names contain these
    python tests/corpus/run.py table                      write docs/explanation/corpus.md

Each operator with a seed is a line of tests/corpus/results.txt, written as soon as it is done, so
that a run that was ended goes on where it was. It exits with 1 where a row failed that
tests/corpus/excused.txt does not explain.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parents[1])]

import results  # noqa: E402
import suite  # noqa: E402

#: Rows that take most of an operator's time, as they compile or export.
LONG = ("opcheck", "compile", "export", "onnx-inline", "onnx-inline-torchscript")
KINDS = ("adopted", "kernel", "numpy")
#: Operators that share one run, whose imports they share.
_TOGETHER = 25
#: Seconds after which a run is ended, for each of its operators.
_SECONDS = 200


def main() -> int:
    """Draft, check or write the table."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("draft", "check", "table", "some"))
    parser.add_argument("names", nargs="*", help="parts of operators' names")
    parser.add_argument("--seeds", type=int, nargs="*", default=[0])
    parser.add_argument("--kinds", nargs="*", default=list(KINDS), choices=KINDS)
    parser.add_argument("--part", default="1/1", help="2/4: the second quarter of the operators")
    parser.add_argument("--again", action="store_true", help="also what has a result")
    parser.add_argument("--quick", action="store_true", help="without what compiles and exports")
    parser.add_argument("--only", nargs="*", default=[], help="these rows alone")
    options = parser.parse_args()
    if options.what == "draft":
        for one in suite.draft_all(options.names):
            print(f"{one.name:40} {'drafted' if one.drafted else one.refused}", flush=True)
        return 0
    if options.what == "table":
        return 0
    if options.what == "some":
        return _check(options.names, options.seeds[0], options.quick, options.only)
    left = list(_left(options))
    print(f"{len(left)} operators with seeds to check", flush=True)
    flagged = 0
    for seed in options.seeds:
        mine = [label for label, own in left if own == seed]
        for k in range(0, len(mine), _TOGETHER):
            flagged += _apart(mine[k : k + _TOGETHER], seed, options)
    return int(flagged > 0)


def labels(kinds: Sequence[str]) -> list[str]:
    """Return every operator of the corpus: ``kernel/aten::add.Tensor``."""
    drafted = sorted(name for name, one in suite.index().items() if one.drafted)
    return [f"{kind}/{name}" for kind in kinds for name in drafted]


def _left(options: argparse.Namespace) -> Iterator[tuple[str, int]]:
    own, _, count = options.part.partition("/")
    every = labels(options.kinds)[int(own) - 1 :: int(count)]
    known = {(one.operator, one.seed) for one in results.read()}
    for label in every:
        for seed in options.seeds:
            named = not options.names or any(part in label for part in options.names)
            if named and (options.again or (label, seed) not in known):
                yield label, seed


def _apart(some: list[str], seed: int, options: argparse.Namespace) -> int:
    """Check some operators in a process of their own; return how many were flagged."""
    command = [sys.executable, __file__, "some", *some, "--seeds", str(seed)]
    if options.quick:
        command.append("--quick")
    if options.only:
        command += ["--only", *options.only]
    try:
        return subprocess.run(command, timeout=_SECONDS * len(some), check=False).returncode
    except subprocess.TimeoutExpired:
        print(f"not finished: {some}", flush=True)
        return 1


def _check(some: list[str], seed: int, quick: bool, only: list[str]) -> int:
    """Check some operators in this process; 1 where a row failed."""
    from opsmith import checks
    from opsmith.checks.runner import planned

    select = only or [
        one.name
        for one in checks.all_checks()
        if one.order < 1000 and not one.flag and not (quick and one.name in LONG)
    ]
    operators = {}
    flagged = 0
    for label in some:
        try:
            operators[label] = _declared(label)
        except Exception as error:
            print(f"{label}: cannot be declared: {type(error).__name__}: {error}", flush=True)
            flagged += 1
    labels = {id(operator): label for label, operator in operators.items()}
    plan = [
        (labels[id(subject.operator)], check.name)
        for subject, check in planned(list(operators.values()), select)
    ]
    rows: list[Any] = []
    started = time.monotonic()

    def on_row(row: Any) -> None:
        nonlocal flagged, started
        label = plan[len(rows)][0]
        rows.append((label, row))
        if row.status in ("failed", "cut short"):
            said = row.explain().partition("  in Python:")[0]
            print(f"{label} seed {seed}\n{said}", flush=True)
            flagged += row.status == "failed"
        if len(rows) == len(plan) or plan[len(rows)][0] != label:
            own = [one for other, one in rows if other == label]
            took = time.monotonic() - started
            started = time.monotonic()
            result = results.of_rows(label, seed, own, took)
            results.add(result)
            print(results.said(result), flush=True)

    checks.run(list(operators.values()), select=select, seed=seed, on_row=on_row)
    return int(flagged > 0)


def _declared(label: str) -> Any:
    import taken

    from opsmith.sources.importing import import_all

    kind, _, name = label.partition("/")
    file = suite.FOLDER / "taken" / f"{kind}_{suite.stem_of(name)}.py"
    file.parent.mkdir(parents=True, exist_ok=True)
    if kind == "adopted":
        file = suite.DRAFTS / f"{suite.stem_of(name)}.py"
    else:
        file.write_text(taken.MODULE.format(here=str(HERE), kind=kind, name=name))
    found = import_all([str(file)])
    return found[-1]


if __name__ == "__main__":
    sys.exit(main())
