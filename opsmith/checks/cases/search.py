"""Looking for a case that fails, and for the smallest such case.

Hypothesis samples and shrinks. Two things are added: a limit on time, and a record of the smallest
failing case that does not depend on the failure happening again, since a kernel may fail only
sometimes.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable
from typing import Any, TypeVar

import hypothesis
from hypothesis import HealthCheck, Phase, Verbosity
from hypothesis.errors import HypothesisException
from hypothesis.strategies import SearchStrategy, integers, lists

Drawn = TypeVar("Drawn")

#: Seconds that looking for a smaller failing case may take.
SHRINK_SECONDS = 10.0
#: So many numbers have a constant among them.
_SURELY = 200


def prepare() -> None:
    """Have Hypothesis read the sources that it takes constants from, before this process forks.

    It does so where a sample first asks for one, which would be in every fork anew.
    """
    search(
        # Of twenty numbers one is a constant; the first sample of all has none.
        lists(integers(), min_size=_SURELY, max_size=_SURELY),
        lambda _: None,
        examples=2,
        seed=0,
        seconds=1.0,
        size=len,
    )


def search(
    strategy: SearchStrategy[Drawn],
    test: Callable[[Drawn], None],
    *,
    examples: int,
    seed: int,
    seconds: float,
    size: Callable[[Drawn], Any],
    on_late: Callable[[], None] = lambda: None,
) -> tuple[Drawn, Exception] | None:
    """Run `test` on samples until one fails, then on ever smaller ones.

    Args:
        strategy: what is sampled.
        test: raises where a sample fails; nothing smaller is looked for where what it raises has
            an attribute `final` that is true.
        examples: how many samples to try.
        seed: decides the samples.
        seconds: after this long no further sample is tried; one is in any case.
        size: what "smaller" means.
        on_late: called where a sample is not tried since the time is over, and none failed.

    Returns:
        The smallest sample that failed and what it raised, or `None` if none did.
    """
    started = time.monotonic()
    failed_at = 0.0
    tried = False
    best: tuple[Any, Drawn, Exception] | None = None

    @hypothesis.seed(seed)
    @hypothesis.settings(
        max_examples=examples,
        deadline=None,
        database=None,
        phases=(Phase.generate, Phase.shrink),
        verbosity=Verbosity.quiet,
        suppress_health_check=list(HealthCheck),
        report_multiple_bugs=False,
        print_blob=False,
    )
    @hypothesis.given(strategy)
    def go(drawn: Drawn) -> None:
        nonlocal best, failed_at, tried
        now = time.monotonic()
        limit = failed_at + SHRINK_SECONDS if best is not None else started + seconds
        late = tried and now > limit
        if late and best is None:
            on_late()
        if late or (best is not None and getattr(best[2], "final", False)):
            return
        tried = True
        try:
            test(drawn)
        except HypothesisException:
            raise
        except Exception as error:
            if best is None:
                # The first failure may be slow: it imports what nothing before it needed.
                failed_at = time.monotonic()
            mine = size(drawn)
            if best is None or mine <= best[0]:
                best = (mine, drawn, error)
            raise

    # For a database, which is not there. Hypothesis makes it of the source, again each time.
    go._hypothesis_internal_database_key = b""  # type: ignore[attr-defined]
    # "No sample fits" and "did not fail again" among them; what counts was recorded.
    with contextlib.suppress(Exception):
        go()
    return None if best is None else (best[1], best[2])
