"""Counting what a check tried, and what it had no time to try.

A row says how many cases of which kind and size ran, how far off each was, and whether they are
enough.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from opsmith.checks.report.rows import Sample

_Key = tuple[str, str, int]
#: A check that ran out of time needs so many cases to have passed, or half of the samples that were
#: due, where these are few; and a quarter of them, where these are many.
_LEAST_CASES = 10


@dataclass
class Tally:
    """What was tried so far.

    Cases are added up by cohort, dtype and size, so that a row stays small however many there were.
    """

    _samples: dict[_Key, Sample] = field(default_factory=dict)
    _current: _Key | None = None

    def begin(self, cohort: str, dtype: str | None, elements: int) -> None:
        """Count one more case, which `error` is about from now on.

        Args:
            cohort: the family that it was drawn from.
            dtype: its generic dtype; `None` where every dtype is fixed.
            elements: how many all of its tensors have.
        """
        key = (cohort, dtype or "", elements.bit_length())
        before = self._samples.get(key, Sample(cohort, dtype or "", 0, 0))
        most = max(before.elements, elements)
        self._samples[key] = replace(before, elements=most, cases=before.cases + 1)
        self._current = key

    def withdraw(self) -> None:
        """Take the case back that was begun last: it does not count."""
        if self._current is None:
            return
        sample = self._samples[self._current]
        self._samples[self._current] = replace(sample, cases=sample.cases - 1)
        self._current = None

    def has(self, dtype: str | None) -> bool:
        """Return whether a case with this generic dtype was counted."""
        return any(one.cases for one in self._samples.values() if one.dtype == (dtype or ""))

    def error(self, error: float) -> None:
        """Remember the error of the case that was begun last, in units of its tolerance."""
        if self._current is None:
            return
        sample = self._samples[self._current]
        self._samples[self._current] = replace(sample, error=max(sample.error or 0.0, error))

    def samples(self) -> tuple[Sample, ...]:
        """What was counted, in the order in which it was begun."""
        return tuple(sample for sample in self._samples.values() if sample.cases > 0)


@dataclass
class Due:
    """What a check was to sample, and what it had no time for.

    A family is a cohort in one dtype.

    Attributes:
        samples: how many samples were due.
        families: how many families they belong to.
        untried: how many families the time was over for before their first sample.
        late: whether the time was over before the last sample.
    """

    samples: int = 0
    families: int = 0
    untried: int = 0
    late: bool = False

    def add(self, samples: int) -> None:
        """Count one more family."""
        self.samples += samples
        self.families += 1

    def run_out(self) -> None:
        """Note that the time is over."""
        self.late = True

    def suffices(self, cases: int) -> bool:
        """Return whether so many cases are enough for a check to have passed.

        A check that had all the time it needed has passed with few cases too: there are no more.
        """
        least = max(min(_LEAST_CASES, (self.samples + 1) // 2), self.samples // 4)
        return not self.late or cases >= least

    def describe(self, cases: int, seconds: float) -> str:
        """Say what ran and what did not."""
        return (
            f"stopped after {seconds:g} s, with {cases} cases; {self.samples} samples were due, "
            f"and {self.untried} of their {self.families} families had none"
        )
