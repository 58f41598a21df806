"""Run every row over a corpus of right operators that others wrote: no row may fail.

    python tests/corpus/corpus_run.py draft               declare PyTorch's operators
    python tests/corpus/corpus_run.py check               the operators that have no result yet
    python tests/corpus/corpus_run.py check sort --again  operators whose names contain this
    python tests/corpus/corpus_run.py check --stale       also what earlier versions of checks ran
    python tests/corpus/corpus_run.py check --seeds 2 --share 2/4 --kinds kernel
    python tests/corpus/corpus_run.py table               write docs/explanation/corpus.md

Each operator with a seed is a line of tests/corpus/results.txt, written as soon as it is done, so
that a run that was ended goes on where it was. It exits with 1 where a row failed that
tests/corpus/excused.txt does not explain.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path[:0] = [str(HERE), str(HERE.parent), str(HERE.parents[1])]

import corpus_compiled  # noqa: E402
import corpus_drawn  # noqa: E402
import corpus_house  # noqa: E402
import corpus_jax  # noqa: E402
import corpus_onnx  # noqa: E402
import corpus_page  # noqa: E402
import corpus_results  # noqa: E402
import corpus_suite  # noqa: E402
import torch  # noqa: E402

from opsmith.operators.adoption.adopt import overload_of  # noqa: E402

_HELP = "quick: without the rows that compile or export; long: those alone"
KINDS = ("kernel", "adopted", "numpy", "jax", "onnx", "library", "formula", *corpus_house.KINDS)
#: Rows that have time for compilers, and leave them to the kernel.
_CHEAP = ("side-effects", "statefulness")
#: Operators that share one run, whose imports they share.
_TOGETHER = 25
#: Seconds after which a run is ended, for each of its operators.
_SECONDS = 200


def options(given: Sequence[str] | None = None) -> argparse.Namespace:
    """Return what the command line asks for."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=("draft", "check", "table", "some"))
    parser.add_argument("names", nargs="*", help="parts of operators' names")
    parser.add_argument("--seeds", type=_seeds, default=range(1), help="how many, or FIRST:END")
    parser.add_argument("--kinds", nargs="*", default=list(KINDS), choices=KINDS)
    parser.add_argument("--share", default="1/1", help="2/4: the second quarter of the operators")
    parser.add_argument("--again", action="store_true", help="also what has a result")
    parser.add_argument("--stale", action="store_true", help="also what other checks than now ran")
    parser.add_argument("--minutes", type=float, default=1e9, help="begin nothing after this long")
    parser.add_argument("--rows", default="all", choices=("all", "quick", "long"), help=_HELP)
    parser.add_argument("--examples", type=int, default=60, help="how many cases a row draws")
    parser.add_argument("--only", nargs="*", default=[], help="these rows alone")
    return parser.parse_args(given)


def main() -> int:
    """Draft, check or write the table."""
    asked = options()
    if asked.what == "draft":
        for one in corpus_suite.draft_all(asked.names):
            print(f"{one.name:40} {'drafted' if one.drafted else one.refused}", flush=True)
        if not asked.names and not corpus_onnx.names_of():
            print(f"{len(corpus_onnx.collect())} operators are a node of ONNX", flush=True)
        return 0
    if asked.what == "table":
        corpus_page.write()
        return 0
    if asked.what == "some":
        return check(asked.names, asked.seeds[0], _rows(asked), asked.examples)
    flagged = 0
    ends = time.monotonic() + 60 * asked.minutes
    for rows in ("quick", "long") if asked.rows == "all" else (asked.rows,):
        asked.rows = rows
        due = list(left(asked))
        print(f"{len(due)} operator-seeds to check, {rows} rows", flush=True)
        for seed in asked.seeds:
            mine = [label for label, own in due if own == seed]
            for k in range(0, len(mine), _TOGETHER):
                if time.monotonic() > ends:
                    return int(flagged > 0)
                flagged += _apart(mine[k : k + _TOGETHER], seed, asked)
    return int(flagged > 0)


def _seeds(text: str) -> range:
    first, _, end = text.rpartition(":")
    return range(int(first or 0), int(end))


def labels(kinds: Sequence[str]) -> list[str]:
    """Return every operator of the corpus: ``kernel/aten::add.Tensor``."""
    found: list[str] = []
    drafted = sorted(
        (one for one in corpus_suite.here().values() if not _is_random(one.name)),
        key=lambda one: one.name,
    )
    for kind in kinds:
        if kind in corpus_house.KINDS:
            found += corpus_house.operators(kind)
        elif kind in ("library", "formula"):
            found += [f"{kind}/{name}" for name in corpus_compiled.names_of(kind)]
        elif kind == "onnx":
            found += [f"{kind}/{name}" for name in corpus_onnx.names_of()]
        else:
            has = {
                "numpy": lambda one: one.compared,
                "jax": lambda one: corpus_jax.has(one.name),
            }
            found += [f"{kind}/{one.name}" for one in drafted if has.get(kind, bool)(one)]
    return found


def _is_random(name: str) -> bool:
    """Return whether an operator draws numbers, which a declaration states by a generator."""
    return torch.Tag.nondeterministic_seeded in overload_of(name).tags


def left(asked: argparse.Namespace) -> Iterator[tuple[str, int]]:
    """Yield the operators and seeds that are to be checked."""
    own, _, count = asked.share.partition("/")
    every = labels(asked.kinds)[int(own) - 1 :: int(count)]
    wanted = set(_rows(asked))
    known = {
        (one.operator, one.seed)
        for one in corpus_results.read()
        if not one.rows or wanted & set(one.rows)
        if not asked.stale or one.checks == corpus_results.digest()
    }
    for label in every:
        for seed in asked.seeds:
            named = not asked.names or any(part in label for part in asked.names)
            if named and (asked.again or (label, seed) not in known):
                yield label, seed


def _apart(some: list[str], seed: int, asked: argparse.Namespace) -> int:
    """Check some operators in a process of their own; return how many were flagged."""
    command = [sys.executable, __file__, "some", *some, "--seeds", f"{seed}:{seed + 1}"]
    command += ["--rows", asked.rows, "--examples", str(asked.examples)]
    if asked.only:
        command += ["--only", *asked.only]
    try:
        quiet = {**os.environ, "PYTHONWARNINGS": "ignore", "OMP_WAIT_POLICY": "passive"}
        limit = _SECONDS * len(some)
        return subprocess.run(command, timeout=limit, check=False, env=quiet).returncode
    except subprocess.TimeoutExpired:
        print(f"not finished: {some}", flush=True)
        return 1


def _rows(asked: argparse.Namespace) -> list[str]:
    from opsmith.checks import all_checks

    wanted = asked.rows == "long"
    return asked.only or [
        one.name
        for one in all_checks()
        if not one.flag and (one.compiles and one.name not in _CHEAP) == wanted
    ]


def check(
    some: list[str], seed: int, select: list[str], examples: int, *, isolate: bool = True
) -> int:
    """Check some operators in this process; return 1 where a row failed that nothing excuses."""
    from opsmith import checks
    from opsmith.checks.runner import planned

    operators = {}
    excused = corpus_page.excuses()
    flagged = 0
    for label in some:
        try:
            operators[label] = declared(label)
        except Exception as error:
            print(f"{label}: cannot be declared: {type(error).__name__}: {error}", flush=True)
            refused = {"declaration": type(error).__name__}
            corpus_results.add(corpus_results.refused(label, seed, examples, refused))
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
            flagged += row.status == "failed" and (label, row.check) not in excused
        if len(rows) == len(plan) or plan[len(rows)][0] != label:
            own = [one for other, one in rows if other == label]
            took = time.monotonic() - started
            started = time.monotonic()
            result = corpus_results.of_rows(label, seed, own, examples, took)
            corpus_results.add(result)
            corpus_drawn.add(own)
            print(corpus_results.said(result), flush=True)

    several = list(operators.values())
    checks.run(several, select=select, seed=seed, examples=examples, isolate=isolate, on_row=on_row)
    return int(flagged > 0)


def declared(label: str) -> Any:
    """Return the operator of a label."""
    import corpus_taken

    from opsmith.sources.importing import import_all

    kind, _, name = label.partition("/")
    if kind in corpus_house.KINDS:
        return corpus_house.operators(kind)[label]
    file = corpus_suite.FOLDER / "taken" / f"{kind}_{corpus_suite.stem_of(name)}.py"
    file.parent.mkdir(parents=True, exist_ok=True)
    if kind == "adopted":
        file = corpus_suite.DRAFTS / f"{corpus_suite.stem_of(name)}.py"
    else:
        file.write_text(corpus_taken.MODULE.format(here=str(HERE), kind=kind, name=name))
    found = import_all([str(file)])
    return found[-1]


if __name__ == "__main__":
    sys.exit(main())
