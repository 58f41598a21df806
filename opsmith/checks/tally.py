"""Counting what a check tried: how many cases of which kind and size, and how far off each was."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from opsmith.checks.report import Sample

_Key = tuple[str, str, int]


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

    def error(self, error: float) -> None:
        """Remember the error of the case that was begun last, in units of its tolerance."""
        if self._current is None:
            return
        sample = self._samples[self._current]
        self._samples[self._current] = replace(sample, error=max(sample.error or 0.0, error))

    def samples(self) -> tuple[Sample, ...]:
        """What was counted, in the order in which it was begun."""
        return tuple(sample for sample in self._samples.values() if sample.cases > 0)
