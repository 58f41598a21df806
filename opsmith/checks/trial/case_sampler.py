"""Search the samples of a check for one that fails, within the check's time."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from opsmith.checks.cases.search import search
from opsmith.checks.cases.settings import Settings
from opsmith.checks.report.case_counts import CaseCounts
from opsmith.checks.trial.case_runner import NothingTakenError

#: Seconds to look for one case in a dtype for which no time is left.
_LEAST_SECONDS = 1.0
#: If none of so many examples could be drawn, none is looked for any more.
_MANY = 10


@dataclass
class CaseSampler:
    """Draws the samples of one check, and keeps account of its time.

    Attributes:
        name: decides the samples, together with the seed and the dtype; the name of the check,
            unless several checks share their samples.
        settings: the seed, and the seconds for all samples together.
    """

    name: str
    settings: Settings
    counts: CaseCounts
    _seconds: float = 0.0
    _none_fits: bool = False

    def sample(
        self,
        strategy: Any,
        test: Callable[[Any], None],
        examples: int,
        dtype: str | None,
        size: Callable[[Any], Any],
    ) -> None:
        """Run `test` on samples, while there is time for them.

        Args:
            strategy: draws a sample.
            test: raises an exception if a sample fails.
            dtype: the generic dtype of the samples.
            size: the size of a sample; the smallest that fails is wanted.
        """
        self.counts.due.samples += examples
        self.counts.due.families += 1
        if self._none_fits or self.counts.mistaken:
            return
        left = self.settings.seconds - self._seconds
        if left <= 0:
            self.counts.due.run_out()
            if self.counts.tally.has(dtype):
                self.counts.due.untried += 1
                return
            # Try at least one case of every dtype, however little time is left.
            examples, left = 1, _LEAST_SECONDS
        # Give every check and dtype its own samples, independent of the other checks that run.
        seed = zlib.crc32(f"{self.settings.seed} {self.name} {dtype}".encode())
        started = time.monotonic()
        ran, refused = self.counts.ran, self.counts.refused
        self.counts.begin_search()
        found = search(
            strategy,
            test,
            examples=examples,
            seed=seed,
            seconds=left,
            size=size,
            on_late=self.counts.due.run_out,
            on_none_fits=lambda: self._give_up(examples),
        )
        self._seconds += time.monotonic() - started
        if self.counts.ran == ran and not self.counts.due.late:
            why = "the reference refused all" if self.counts.refused > refused else "none fits"
            self.counts.lacking[self.counts.cohort, dtype or ""] = why
        if found is not None and not isinstance(found[1], NothingTakenError):
            raise found[1]

    def _give_up(self, examples: int) -> None:
        # Hypothesis has rejected ten samples for each example. Others have no other sizes.
        self._none_fits = examples >= _MANY and not self.counts.ran
