"""Run a check's function on one case: count the case, announce it, and tell failures apart."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import hypothesis

from opsmith.checks.cases.case import FAILED_BEFORE, Case
from opsmith.checks.cases.disagreement import sizes_of
from opsmith.checks.cases.failure import Failure, Inapplicable, code_of, place_of, raised
from opsmith.checks.cases.reference_call import spent
from opsmith.checks.cases.reruns.rerun_command import Replay
from opsmith.checks.numerics.oracle import RefusedError
from opsmith.checks.numerics.torch_threads import threads
from opsmith.checks.report.case_counts import CaseCounts
from opsmith.checks.trial.attribution import Attribution
from opsmith.system.stopwatch import spending

#: If the reference refuses this many samples before it accepts one, no more samples are drawn.
_MOST_REFUSED = 100
#: Number of samples whose sizes are kept, of those that the reference takes and of the others.
_SIZES = 60

Announce = Callable[[str, str, int], None]
"""Receives a case's description, its key and its size before the case runs."""


class NothingTakenError(Exception):
    """The reference refused so many samples that the search for an accepted sample is given up."""

    final = True


@dataclass
class CaseRunner:
    """Runs the cases of a check, each of them counted and announced.

    Attributes:
        attribution: the failure code for an exception.
        announce: called before every case, so that a crash can be attributed to its case.
        crashed: digests of cases that ended a process before: how it ended, and the failure code.
        replay: says whether to run one case alone.
    """

    counts: CaseCounts
    attribution: Attribution
    announce: Announce
    crashed: Mapping[str, tuple[str, str]]
    replay: Replay

    def one(self, body: Callable[[Case], None], case: Case) -> None:
        """Count and announce `case`, and run `body` on it."""
        self.counts.ran += 1
        self.announce_case(case)
        if self.replay.alone and self.replay.alone != case.digest:
            return
        cohort = "registered" if case.origin else self.counts.cohort
        self.counts.tally.begin(cohort, case.dtype, case.numel)
        started, before = time.monotonic(), spent.seconds
        try:
            # Only the kernel itself runs with all threads: see `KernelCaller.call`.
            with threads(1), spending():
                body(case)
            if case.sampled and len(self.counts.taken_sizes) < _SIZES:
                self.counts.taken_sizes.append(sizes_of(case))
        except RefusedError as error:
            self._refuse(case, error)
        except Failure as failure:
            failure.case = failure.case or case
            raise
        except (Inapplicable, hypothesis.errors.HypothesisException):
            raise
        except Exception as error:
            code = code_of(error, self.attribution.raises)
            raise Failure(raised(error), case, code=code) from error
        finally:
            self.counts.seconds += time.monotonic() - started
            self.counts.in_reference += spent.seconds - before
            if spent.seconds - before > self.counts.slowest[0]:
                self.counts.slowest = spent.seconds - before, case.describe()

    def two(self, body: Callable[[Case, Case], None], pair: tuple[Case, Case]) -> None:
        """Run `body` on a pair of cases; the first is counted and announced."""
        try:
            self.one(lambda first: body(first, pair[1]), pair[0])
        except Failure as failure:
            failure.beside = pair[1] if failure.case is pair[0] else None
            raise

    def announce_case(self, case: Case, doing: str = "") -> None:
        """Announce that `case` is about to run, without counting it."""
        description = f"{case.describe()}; {doing}" if doing else case.describe()
        key = f"{case.digest} {doing}" if doing else case.digest
        if key in self.crashed:
            how, code = self.crashed[key]
            raise Failure(how, case, code=code)
        self.announce(description, key, case.numel)

    def _refuse(self, case: Case, error: RefusedError) -> None:
        self.counts.ran -= 1
        self.counts.tally.withdraw()
        if case.origin == FAILED_BEFORE:  # it failed, and the author ruled it out since
            return
        if case.origin:
            raise Failure(
                f"the reference refuses a registered case: {error}", case, code="OPS-CASES-REFUSED"
            ) from error
        self.counts.refused += 1
        if len(self.counts.refused_sizes) < _SIZES:
            self.counts.refused_sizes.append(sizes_of(case))
        self.counts.refusal, self.counts.refused_at = str(error), place_of(error.__cause__)
        if self.counts.mistaken or self.counts.refused_in_vain() >= _MOST_REFUSED:
            raise NothingTakenError
        hypothesis.reject()
