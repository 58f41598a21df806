"""Check operators on the machines of a cluster, all rows of an operator in one process there.

These rows share a build, exports and right results, and each decides which of the others run.
"""

from __future__ import annotations

import math
import os
import platform
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from opsmith.checks.cluster.lanes import Lost, each_answer
from opsmith.checks.cluster.on_ray import lanes_of
from opsmith.checks.isolation.import_location import Location, locate, obtain
from opsmith.checks.report.rows import Row
from opsmith.checks.row_history import not_run
from opsmith.checks.run_report import Report
from opsmith.checks.runner import planned, require_devices, run
from opsmith.checks.workers.schedule import Progress
from opsmith.checks.workers.watch import files_of
from opsmith.checks.workers.worker_pool import keep_workers
from opsmith.errors import LoadError, OpsmithError
from opsmith.operators import Operator
from opsmith.system.files import digest


def run_on_ray(
    operators: Sequence[Operator],
    address: str,
    *,
    say: Callable[[str], None],
    jobs: int | None = None,
    progress: Progress | None = None,
    on_row: Callable[[Row], None] = lambda row: None,
    **options: Any,
) -> Report:
    """Check operators as `run` does; what ends a process gives its operator to another one.

    Args:
        operators: the operators, declared in files that every machine has at the same paths.
        address: the address of the cluster; see `lanes_of`.
        say: called with why a process checks nothing, and with why a process ended.
        jobs: number of operators at a time; by default as many as the cluster has processors.
        progress: called whenever an operator begins, and at the end.
        on_row: called with the rows in order, with those of an operator when all of them and all
            before them are done.
        options: options of `run`.

    Returns:
        The report of `run`; the rows of an operator that ended every process did not run.

    Raises:
        NotLocatedError: an operator is not declared in a file.
        OpsmithError: no process could begin; the error of the first.
    """
    started = time.monotonic()
    digests = {str(path): digest(path) for path in files_of(operators)}
    roots = [r for r in sys.path if any(Path(f).is_relative_to(Path(r).resolve()) for f in digests)]
    asked = options.get("select"), options.get("flags", ()), options.get("devices", ())
    plans = [planned([one], *asked) for one in operators]
    located = [locate(one) for one in operators]
    report = Report(
        seed=options.get("seed", 0), allow_cut_short=options.get("allow_cut_short", False)
    )
    found: dict[int, Report] = {}
    running: list[str] = []
    told = 0

    def tell() -> None:
        if progress is not None:
            done = sum(len(plans[place]) for place in found)
            progress(done, sum(map(len, plans)), ", ".join(running))

    def ask(place: int) -> tuple[Any, ...]:
        running.append(operators[place].name)
        tell()
        return _checked, place

    begin = (_begin, located, digests, (os.getcwd(), roots, sys.argv), options)
    every = range(len(operators))
    with lanes_of(address, jobs) as lanes:
        answers = each_answer(every, lanes, begin, ask, patience=math.inf, say=say)
        for place, answer in answers:
            running = [name for name in running if name != operators[place].name]
            if isinstance(answer, Lost):
                lost = [not_run(check, subject, answer.reason) for subject, check in plans[place]]
                answer = Report(lost)
            found[place] = answer
            while told in found:
                report.rows += found[told].rows
                report.left_out += found[told].left_out
                report.without_kernel += found[told].without_kernel
                for row in found[told].rows:
                    on_row(row)
                told += 1
    tell()
    report.elapsed = time.monotonic() - started
    return report


# --- in the process of a lane --------------------------------------------------------------------

#: The operators of the run, and its options.
_given: list[Any] = []


def _begin(
    located: Sequence[Location],
    digests: Mapping[str, str],
    surroundings: tuple[str, Sequence[str], Sequence[str]],
    options: Mapping[str, Any],
) -> None:
    """Import the operators; raise if they are others here than where the command was given."""
    here = f"{platform.node()} checks nothing:"
    for file, asked in digests.items():
        found = digest(Path(file))
        if found != asked:
            what = "differs from" if found else "is missing, unlike"
            raise LoadError(
                f"{here} {file} {what} the one of the machine that gives the command. Put what is "
                "checked where every machine finds it at the same path."
            )
    folder, roots, sys.argv[:] = surroundings
    os.chdir(folder)
    sys.path[:0] = [root for root in roots if root not in sys.path]
    try:
        require_devices(options.get("devices", ()))
        operators = [obtain(one) for one in located]
    except OpsmithError as error:
        raise LoadError(f"{here} {error}") from error
    keep_workers()
    _given[:] = operators, options


def _checked(place: int) -> Report:
    operators, options = _given
    return run(operators[place], **options)
