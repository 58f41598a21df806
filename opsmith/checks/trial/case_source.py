"""Choose the cases of a check: the user's or the author's first, then samples."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import hypothesis

from opsmith.checks.cases.case import Case
from opsmith.checks.cases.reruns.registered_cases import (
    author_cases,
    few_of,
    has_no_small_size,
    laid_out,
    pair_of,
    shapes_of,
    size_of,
    spread,
)
from opsmith.checks.cases.reruns.stored_cases import Stored, given_cases
from opsmith.checks.cases.sampling import cases, pairs
from opsmith.checks.cases.settings import Settings
from opsmith.checks.cases.subject import Subject
from opsmith.checks.cases.wanted import SIZES, Wanted
from opsmith.checks.report.case_counts import CaseCounts
from opsmith.checks.trial.case_runner import CaseRunner, NothingTakenError
from opsmith.checks.trial.case_sampler import CaseSampler
from opsmith.compat.torch_tracing import fake_mode
from opsmith.operators import Operator
from opsmith.operators.core.arguments import flatten, map_tensors
from opsmith.operators.core.source_location import where_written
from opsmith.signature.dtype_variables import fit
from opsmith.system.stopwatch import spending

#: The most elements of results whose shapes are not declared, and the most samples that have more.
_MOST_RESULTS, _MOST_VAST = 1 << 18, 10
#: A sample of so few elements runs whatever a fake kernel says, which may be wrong.
_FEW = 64
#: Seconds in which one case is repeated.
_REPEAT_SECONDS = 5.0
#: The beginning of the message where the reference accepts no sample.
REFUSES_ALL = "the reference refuses every sampled case"


@dataclass(frozen=True)
class CaseSelection:
    """The cases that a check asks for; `Trial.each` explains the attributes."""

    dtypes: Sequence[str | None] | None
    wanted: Wanted | None
    examples: int | None
    registered_cases: bool
    most: int | None
    keep: Callable[[Case], bool] | None
    adapt: Callable[[Case], Case] | None


@dataclass
class CaseSource:
    """Chooses the cases of one check.

    Attributes:
        recalled: a case that failed in an earlier run, to be tried first.
        family: number of calls of `each` so far; identifies the current family of cases.
    """

    subject: Subject
    settings: Settings
    counts: CaseCounts
    runner: CaseRunner
    sampler: CaseSampler
    recalled: Stored | None = None
    family: int = 0

    @property
    def operator(self) -> Operator:
        """The operator."""
        return self.subject.operator

    @property
    def only_registered(self) -> bool:
        """Return whether every case is registered by the author or given by the user."""
        return self.operator.only_registered_cases or bool(self.settings.given)

    def each(self, body: Callable[[Case], None], selection: CaseSelection) -> None:
        """Run `body` on the author's cases and on sampled cases; see `Trial.each`."""
        every = tuple(selection.dtypes) if selection.dtypes is not None else self.subject.dtypes
        total = self.settings.examples if selection.examples is None else selection.examples
        self.family += 1
        self._recall(body, every, selection.keep)
        # The first sample of a search is the simplest that there is.
        share = max(min(total, 2), round(total / len(every))) if every else 0
        for dtype in every:
            wanted = replace(selection.wanted or Wanted(), dtype=dtype, seed=self.settings.seed)
            if selection.registered_cases:
                self._author(body, dtype, selection, share)
            if not self.only_registered and total:
                self._sample(
                    lambda wanted: cases(self.operator.signature, wanted).filter(
                        selection.keep or (lambda _: True)
                    ),
                    self._small(body, wanted),
                    wanted,
                    share,
                    size_of,
                )
            if self.counts.refused and not self.counts.ran:
                # If the reference refuses every sample of one dtype, it refuses those of the other
                # dtypes too.
                break

    def each_pair(
        self,
        body: Callable[[Case, Case], None],
        *,
        dtypes: Sequence[str | None],
        wanted: Wanted,
        examples: int,
    ) -> bool:
        """Run `body` on pairs of cases that differ only in sizes; return whether any pair ran."""
        before = self.counts.ran
        for dtype in dtypes:
            by_author = pair_of(self.operator, self.author_cases(dtype))
            if by_author is not None:
                self.runner.two(body, by_author)
            if self.only_registered or not examples:
                continue
            self._sample(
                lambda wanted: pairs(self.operator.signature, wanted).filter(self._is_dynamic),
                lambda pair: self.runner.two(body, pair),
                replace(wanted, dtype=dtype, seed=self.settings.seed),
                examples,
                lambda pair: size_of(pair[0]),
            )
        return self.counts.ran > before

    def _sample(
        self,
        strategy: Callable[[Wanted], Any],
        test: Callable[[Any], None],
        wanted: Wanted,
        examples: int,
        size: Callable[[Any], Any],
    ) -> None:
        """Sample the sizes that the check wants; if the reference refuses all, larger ones too.

        A reference of the five nearest points takes none of a check that draws sizes up to four.
        """
        self.sampler.sample(strategy(wanted), test, examples, wanted.dtype, size)
        largest = max(wanted.sizes)
        larger = tuple(each for each in SIZES if each > largest)
        # A check that draws no size above 1 is a check of sizes 0 and 1.
        if larger and largest > 1 and self.counts.refused_in_vain():
            wider = strategy(replace(wanted, sizes=wanted.sizes + larger))
            self.sampler.sample(wider, test, examples, wanted.dtype, size)

    def _small(self, body: Callable[[Case], None], wanted: Wanted) -> Callable[[Case], None]:
        """Return the test of a search, which runs `body` where results are not vast.

        Results of undeclared shapes may have the square of a size, or of a number.
        """
        vast, before = 0, self.counts.ran
        few = 0 if wanted.forced or wanted.given else _FEW

        def run(case: Case) -> None:
            nonlocal vast
            undeclared = case.numel > few and not self.operator.signature.shaped
            if undeclared and self._results(case) > _MOST_RESULTS:
                vast += 1
                if vast > _MOST_VAST + self.counts.ran - before:
                    raise NothingTakenError
                hypothesis.reject()
            self.runner.one(body, case)

        return run

    def _results(self, case: Case) -> int:
        """Return how many elements a case's results have, by the fake kernel; 0 if that raises."""
        signature, mode = self.operator.signature, fake_mode(allow_non_fake_inputs=True)
        own = {name: map_tensors(one, mode.from_tensor) for name, one in case.make().items()}
        positional, keywords = self.operator.split(own)
        try:
            with mode:
                results = flatten(signature, self.operator(*positional, **keywords), own)
            return sum(result.numel() for result in results)
        except Exception:  # the row `fake` says what is wrong with it
            return 0

    @spending("drawing")
    def author_cases(self, dtype: str | None) -> list[Case]:
        """Return the author's cases, the smallest first, or the cases that the user gave."""
        if self.settings.given:
            given = given_cases(self.operator, self.settings.given)
            return [case for case in given if fit(case.dtype, dtype)]
        return author_cases(self.operator, dtype, self.settings.seed)

    def _recall(
        self,
        body: Callable[[Case], None],
        dtypes: Sequence[str | None],
        keep: Callable[[Case], bool] | None,
    ) -> None:
        """Run the case that failed in an earlier run, if it belongs to this family."""
        if self.recalled is None or self.recalled.family != self.family:
            return
        case = self.recalled.case
        if case.dtype in dtypes and (keep is None or keep(case)):
            self.runner.one(body, case)

    def _author(
        self,
        body: Callable[[Case], None],
        dtype: str | None,
        selection: CaseSelection,
        sampled: int,
    ) -> None:
        """Run the author's cases; where nothing is sampled, as many more as `sampled` says."""
        most, keep, adapt = selection.most, selection.keep, selection.adapt
        given = bool(self.settings.given)
        kept = [case for case in self.author_cases(dtype) if keep is None or keep(case)]
        if adapt is not None and not given:
            kept = [adapt(case) for case in kept]
        if self.operator.only_registered_cases and most is None and not given:
            # When nothing is sampled, run the author's cases with further seeds instead, in the
            # layouts that samples would have.
            wanted = selection.wanted or Wanted()
            found = author_cases(self.operator, dtype, self.settings.seed, (1, 2))
            more = [laid_out(case, wanted.layouts) for case in found]
            more = spread([case for case in more if keep is None or keep(case)], sampled)
            kept = sorted([*kept, *more], key=size_of)
        elif most is not None:
            kept = few_of(kept, most)
        for case in kept:
            deadline = time.monotonic() + _REPEAT_SECONDS
            for turn in range(self.settings.repeats):
                if turn < 2 or time.monotonic() < deadline:
                    self.runner.one(body, case)

    def _is_dynamic(self, pair: tuple[Case, Case]) -> bool:
        different = shapes_of(pair[0]) != shapes_of(pair[1])
        return different and all(has_no_small_size(self.operator, case) for case in pair)


def explain_no_case(operator: Operator, settings: Settings, counts: CaseCounts) -> str:
    """Return why no case was run, and what an author does about it."""
    hint = "Say what arguments may be (Index, Between, Extent), or give cases: register_cases."
    plain = [
        repr(parameter.name)
        for parameter in operator.signature.tensors
        if parameter.tensor_type is not None and parameter.tensor_type.shape is None
    ]
    if plain and counts.refused:
        hint = (
            f"{' and '.join(plain)}: declared as plain Tensor, so that samples have any number of "
            "dimensions, each of any size. Declare what shapes fit together, as in "
            'Float[Tensor, "N K"] and Float[Tensor, "K M"], or give cases: register_cases.'
        )
    if counts.mistaken:
        hint = "No arguments change that: correct the reference."
    if counts.refused:
        place = counts.refused_at or f"\n  at {where_written(operator.reference)}"
        return f"{REFUSES_ALL}, the last with: {counts.refusal}{place}\n{hint}"
    if settings.given:
        return "none of the given cases suits this check"
    if operator.only_registered_cases:
        return "the functions given to register_cases(only=True) yield no case for this check"
    if operator.signature.where:
        hint = (
            f"If no sizes satisfy where={operator.signature.where!r}, correct the conditions. If "
            "some sizes do, give cases that have them: register_cases."
        )
    return f"no arguments could be sampled that fit the declaration.\n{hint}"
