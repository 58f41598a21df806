"""Judge right and wrong kernels of tasks of KernelBench's level 1.

    python benchmarks/kernelbench/kernelbench.py [--task NAME ...] [--jobs 2] [--examples 20]

The tasks are stated anew, in `tasks/`: a declaration, a reference and registered cases each, with
shapes that a CPU computes at once. `kernels/` has a right kernel for each, a wrong one with a
mistake of its own, and kinds of wrong ones that are made of the right one. `opsmith judge` accepts
the right ones, or says which row refuses them.
"""

from __future__ import annotations

import argparse
import re
import shutil
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

HERE = Path(__file__).parent
FAMILIES = sorted(path.stem for path in (HERE / "tasks").glob("*.py") if path.stem != "stated")
WRONG = ("own", "zeros", "cached", "imprecise", "in place", "padded")
_DECLARED = re.compile(r"^@task\((\d+),[^\n]*\ndef (\w+)", re.MULTILINE)


@dataclass(frozen=True)
class Judged:
    """The outcome of a kernel.

    Attributes:
        task: the name of the task.
        kind: ``"right"``, or one of `WRONG`.
        outcome: ``"accepted"``, ``"undecided"``, the row that refused it, or ``"raised"`` if it
            raised an exception.
        message: the row's message.
    """

    task: str
    kind: str
    outcome: str
    message: str = ""


def tasks(family: str) -> dict[str, int]:
    """Return the tasks of a family, with their numbers in KernelBench's level 1."""
    text = (HERE / "tasks" / f"{family}.py").read_text()
    return {name: int(number) for number, name in _DECLARED.findall(text)}


def judged(family: str, names: Sequence[str], kind: str, examples: int, seed: int) -> list[Judged]:
    """Judge the kernels of one kind for tasks of a family, in one run of the judge."""
    from opsmith.checks.cases import search
    from opsmith.judge import judge
    from opsmith.system.processes.sandbox.policy import unavailable

    # Nobody reads the smallest case that refuses a wrong kernel.
    search.SHRINK_SECONDS = 0.5
    with tempfile.TemporaryDirectory() as place:
        spec, kernels = Path(place, "spec"), Path(place, "kernels")
        shutil.copytree(HERE / "tasks", spec)
        shutil.copytree(HERE / "kernels", kernels)
        candidate = kernels / "submission.py"
        candidate.write_text(
            f"import kernels_{family}\nimport {family}\nfrom kinds import register\n\n"
            f"register({family}, kernels_{family}, {kind!r}, {tuple(names)!r})\n"
        )
        verdict = judge(
            spec / f"{family}.py",
            candidate,
            seed=seed,
            examples=examples,
            seconds=600,
            trust_candidate=bool(unavailable()),
            first=True,
        )
    found = {}
    for row in verdict.report.rows:
        name = row.operator.partition("::")[2]
        refused = {"failed": row.check, "cut short": "undecided"}.get(row.status)
        if row.code == "OPS-CALL-RAISED":
            refused = "raised"
        if name in names and (refused or name not in found):
            message = row.explain() if refused else ""
            found[name] = Judged(name, kind, refused or "accepted", message)
    return list(found.values())


def plan(chosen: Sequence[str]) -> Iterator[tuple[str, list[str], str]]:
    """Yield families, names of tasks and kinds that are judged together."""
    for family in FAMILIES:
        names = [name for name in tasks(family) if not chosen or name in chosen]
        for kind in ("right", *WRONG) if names else ():
            # Right ones take longest, so that few are in a part.
            size = 3 if kind == "right" else len(names)
            for first in range(0, len(names), size):
                yield family, names[first : first + size], kind


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n")[0])
    parser.add_argument("--task", action="append", default=[], help="only this task; repeatable")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--examples", type=int, default=20)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--verbose", action="store_true", help="print outcomes as they come")
    options = parser.parse_args()
    numbers = {name: number for family in FAMILIES for name, number in tasks(family).items()}
    for name in options.task:
        if name not in numbers:
            parser.error(f"no task {name!r}; there are {', '.join(numbers)}")
    began = time.monotonic()
    results: list[Judged] = []
    with ProcessPoolExecutor(options.jobs) as pool:
        waiting = [
            pool.submit(judged, *one, options.examples, options.seed) for one in plan(options.task)
        ]
        for future in waiting:
            results += future.result()
            if options.verbose:
                told = [f"{one.task} {one.kind}: {one.outcome}" for one in future.result()]
                print(f"{time.monotonic() - began:4.0f} s", ", ".join(told), flush=True)
            for one in future.result():
                if (one.kind == "right") != (one.outcome == "accepted"):
                    print(f"{one.task}, {one.kind}: {one.outcome}\n{one.message}", flush=True)
    by_task = {name: {r.kind: r.outcome for r in results if r.task == name} for name in numbers}
    print(f"{'task':28}{'right':14}" + "".join(f"{kind:14}" for kind in WRONG))
    for name, number in sorted(numbers.items(), key=lambda one: one[1]):
        if by_task[name]:
            cells = "".join(f"{by_task[name].get(kind, '-'):14}" for kind in ("right", *WRONG))
            print(f"{number:3} {name:24}{cells}".rstrip())
    right = [one for one in results if one.kind == "right"]
    wrong = [one for one in results if one.kind != "right"]
    accepted = sum(one.outcome == "accepted" for one in right)
    refused = sum(one.outcome not in ("accepted", "undecided") for one in wrong)
    print(
        f"{accepted} of {len(right)} right kernels accepted, {refused} of {len(wrong)} wrong ones "
        f"refused, in {time.monotonic() - began:.0f} s"
    )
    return int(accepted < len(right) or refused < len(wrong))


if __name__ == "__main__":
    sys.exit(main())
