"""Counts of the cases that a check ran, and of those that it had no time for.

A row of a report contains the number of cases by kind and size, their errors, and whether the cases
are enough.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from opsmith.checks.report.rows import Sample

_Key = tuple[str, str, int]


@dataclass
class Tally:
    """The cases that ran so far.

    Cases are counted by cohort, dtype and size, so that a row stays small even for many cases.
    """

    _samples: dict[_Key, Sample] = field(default_factory=dict)
    _current: _Key | None = None

    def begin(self, cohort: str, dtype: str | None, elements: int) -> None:
        """Count one more case; later calls of `error` and `withdraw` refer to this case.

        Args:
            dtype: the generic dtype of the case; `None` where every dtype is fixed.
            elements: number of elements of all its tensors.
        """
        key = (cohort, dtype or "", elements.bit_length())
        before = self._samples.get(key, Sample(cohort, dtype or "", 0, 0))
        most = max(before.elements, elements)
        self._samples[key] = replace(before, elements=most, cases=before.cases + 1)
        self._current = key

    def withdraw(self) -> None:
        """Do not count the case that was begun last."""
        if self._current is None:
            return
        sample = self._samples[self._current]
        self._samples[self._current] = replace(sample, cases=sample.cases - 1)
        self._current = None

    def has(self, dtype: str | None) -> bool:
        """Return whether a case with this generic dtype was counted."""
        return any(one.cases for one in self._samples.values() if one.dtype == (dtype or ""))

    def error(self, error: float) -> None:
        """Record the error of the case that was begun last, in units of its tolerance."""
        if self._current is None:
            return
        sample = self._samples[self._current]
        self._samples[self._current] = replace(sample, error=max(sample.error or 0.0, error))

    def samples(self) -> tuple[Sample, ...]:
        """Return the counts in the order in which their first cases began."""
        return tuple(sample for sample in self._samples.values() if sample.cases > 0)


@dataclass
class Due:
    """The samples that a check should run, and those that it had no time for.

    A family is a cohort in one dtype.

    Attributes:
        samples: number of samples that were due.
        families: number of families of these samples.
        untried: number of families without a sample because the time was over.
        late: whether the time was over before the last sample.
        unfinished: describes further work for which there was no time left; empty if there is none.
    """

    samples: int = 0
    families: int = 0
    untried: int = 0
    late: bool = False
    unfinished: str = ""

    def run_out(self) -> None:
        """Record that the time is over."""
        self.late = True

    def describe(self, cases: int, seconds: float) -> str:
        """Describe which samples ran and which did not; empty if nothing was left out."""
        if not self.late:
            return self.unfinished
        said = f"stopped after {seconds:g} s, with {cases} cases; {self.samples} samples were due"
        if not self.untried:
            return said
        return f"{said}, and {self.untried} of their {self.families} families had none"


#: What a mistake in a reference raises, and in how many cases before it is taken for that.
_MISTAKEN = ("NameError", "UnboundLocalError", "AttributeError", "TypeError", "ModuleNotFoundError")
_MISTAKES = 20


@dataclass(slots=True)
class CaseCounts:
    """The counts of one check.

    Attributes:
        refused: number of sampled cases that the reference refused.
        refusal: the reference's message for the last refused case.
        refused_at: a line with the place in the user's code that raised it; empty if unknown.
        error: the largest error so far, as a multiple of the tolerance; `None` before any
            comparison.
        in_reference: those of them that the reference took.
        slowest: the seconds of the reference in the case in which it took longest, and the case.
        taken_sizes: the sizes of some samples that the reference took, by dimension.
        refused_sizes: the sizes of some samples that it refused.
        compared: number of elements that were compared.
        cohort: the family that sampled cases belong to, for the report.
        lacking: why no case of a cohort could be drawn in a dtype, by cohort and dtype.
        tally: counts the cases that ran.
        due: counts the samples that were to run.
    """

    ran: int = 0
    refused: int = 0
    refusal: str = ""
    refused_at: str = ""
    error: float | None = None
    seconds: float = 0.0
    in_reference: float = 0.0
    slowest: tuple[float, str] = (0.0, "")
    taken_sizes: list[dict[str, int]] = field(default_factory=list)
    refused_sizes: list[dict[str, int]] = field(default_factory=list)
    compared: int = 0
    cohort: str = "normal"
    lacking: dict[tuple[str, str], str] = field(default_factory=dict)
    tally: Tally = field(default_factory=Tally)
    due: Due = field(default_factory=Due)
    _before: tuple[int, int] = (0, 0)

    def stopped(self, seconds: float) -> str:
        """Describe what was left out, and the reference if it took most of the time; else empty."""
        said = self.due.describe(self.ran, seconds)
        if not said or self.in_reference <= max(self.seconds, 1.0) / 2:
            return said
        longest, case = self.slowest
        return (
            f"{said}. The reference, run with many roundings, took {self.in_reference:.0f} of "
            f"{self.seconds:.0f} s, {longest:.1f} s in one case: {case}"
        )

    def undrawn(self) -> str:
        """Describe the cohorts and dtypes of which no case could be drawn; empty without one."""
        had = {name for sample in self.tally.samples() for name in (sample.cohort, sample.dtype)}
        found: dict[str, dict[str, None]] = {}
        for names, why in self.lacking.items():
            lacks = {name: None for name in names if name and name not in had}
            found.setdefault(why, {}).update(lacks)
        return "; ".join(
            f"no case of {', '.join(some)}: {why}" for why, some in found.items() if some
        )

    def begin_search(self) -> None:
        """Start to count the samples of a search, for `refused_in_vain`."""
        self._before = self.ran, self.refused

    def refused_in_vain(self) -> int:
        """Return how many samples were refused since `begin_search`; 0 once a case ran."""
        ran, refused = self._before
        return self.refused - refused if self.ran == ran else 0

    @property
    def mistaken(self) -> bool:
        """Return whether the reference raised in each case what no arguments change."""
        often = self.refused >= _MISTAKES and not self.ran
        return often and self.refusal.partition(":")[0] in _MISTAKEN

    def record_error(self, error: float) -> None:
        """Record the error of the case that ran last, in units of its tolerance."""
        self.error = max(self.error or 0.0, error)
        self.tally.error(error)
