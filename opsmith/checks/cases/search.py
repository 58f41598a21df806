"""Search for a failing case, and for the smallest one.

Hypothesis samples and shrinks. This module adds a time limit, and records the smallest failing case
even if the failure does not happen again, since a kernel may fail only sometimes.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

import hypothesis
from hypothesis import HealthCheck, Phase, Verbosity
from hypothesis.errors import HypothesisException
from hypothesis.strategies import SearchStrategy, builds, integers, lists, tuples

from opsmith.compat.hypothesis import give_no_key
from opsmith.system.stopwatch import spending

Drawn = TypeVar("Drawn")

#: Time limit in seconds of the search for a smaller failing case.
SHRINK_SECONDS = 10.0
#: The search for a first sample ends after so many rejected samples, but not before this part of
#: the time for all samples is over.
_MANY, _FIRST_SAMPLE = 10, 1 / 3
#: Among this many numbers, at least one is practically always a constant.
_SURELY = 200


class _NoSampleFits(BaseException):
    """Raised where every sample has been rejected for long; Hypothesis would go on for minutes."""


def prepare() -> None:
    """Make Hypothesis collect constants from the sources before this process forks.

    Hypothesis collects them when a sample first needs one: otherwise, every fork would do so again.
    """
    search(
        # One of twenty numbers is a constant; the very first sample contains none.
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
    on_none_fits: Callable[[], None] = lambda: None,
) -> tuple[Drawn, Exception] | None:
    """Run `test` on samples until one fails, then on smaller and smaller ones.

    Args:
        test: function that raises if a sample fails; if the exception has a true attribute `final`,
            no smaller sample is searched for.
        examples: number of samples to try.
        seconds: time limit in seconds; at least one sample is tried, unless many are rejected for
            a third of the time.
        size: sort key of samples, less for smaller ones.
        on_late: called for each sample that is skipped because the time is over and none failed.
        on_none_fits: called if every sample was rejected.

    Returns:
        The smallest failing sample and its exception, or `None` if no sample failed.

    Raises:
        Exception: what `strategy` raised, if no sample failed before.
    """
    started = time.monotonic()
    failed_at = 0.0
    tried, begun = False, 0
    best: tuple[Any, Drawn, Exception] | None = None

    def stop_if_none_fits() -> None:
        nonlocal begun
        begun += 1
        if not tried and begun > _MANY and time.monotonic() > started + _FIRST_SAMPLE * seconds:
            raise _NoSampleFits

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
    @hypothesis.given(tuples(builds(stop_if_none_fits), strategy))
    def go(both: tuple[None, Drawn]) -> None:
        _, drawn = both
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
                # The first failure may be slow, since it may import modules for the first time.
                failed_at = time.monotonic()
            mine = size(drawn)
            if best is None or mine <= best[0]:
                best = (mine, drawn, error)
            raise

    give_no_key(go)
    try:
        with spending("drawing"):
            go()
    except (HypothesisException, _NoSampleFits):
        pass  # No sample fits, or a failure did not happen again: `best` and `tried` tell which.
    except Exception:
        # The failure of a sample is in `best`. Any other exception is a defect of what draws.
        if best is None:
            raise
    if not tried:
        on_none_fits()
    return None if best is None else (best[1], best[2])
