"""Run a check on an operator and a kernel: draw cases, announce each of them, and count them."""

from __future__ import annotations

import time
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import hypothesis
import torch
from torch import Tensor

from opsmith.checks.cases import layouts
from opsmith.checks.cases.case import FAILED_BEFORE, Case
from opsmith.checks.cases.failure import CHANGED, Failure, Inapplicable
from opsmith.checks.cases.reference_call import run_reference
from opsmith.checks.cases.registered_cases import (
    author_cases,
    few_of,
    has_no_small_size,
    pair_of,
    shapes_of,
    size_of,
    spread,
)
from opsmith.checks.cases.rerun_case import Replay
from opsmith.checks.cases.sampling import Wanted, cases, pairs
from opsmith.checks.cases.search import search
from opsmith.checks.cases.settings import Settings
from opsmith.checks.cases.subject import Subject
from opsmith.checks.cases.user_cases import given_cases
from opsmith.checks.isolation.fork_detection import forking_fails
from opsmith.checks.isolation.user_traceback import raised
from opsmith.checks.numerics.comparison import compare, same_bits
from opsmith.checks.numerics.oracle import Expected, RefusedError, expected_of, require_accepted
from opsmith.checks.numerics.oracle_cache import Truth, kept_truth
from opsmith.checks.report.case_counts import Due, Tally
from opsmith.checks.report.rows import Status
from opsmith.kernels import HOST
from opsmith.kernels.build.files import key_of
from opsmith.operators import Operator
from opsmith.operators.core.arguments import flatten
from opsmith.operators.core.source_location import where_written
from opsmith.operators.core.torch_threads import threads
from opsmith.signature import Signature

if TYPE_CHECKING:
    from opsmith.checks.cases.failure_database import Stored
    from opsmith.checks.isolation.kernel_client import Caller
    from opsmith.targets import Route, Target

#: If the reference refuses this many samples before it accepts one, no more samples are drawn.
_MOST_REFUSED = 100

#: Seconds to look for one case in a dtype for which no time is left.
_LEAST_SECONDS = 1.0

Announce = Callable[[str, str, int], None]
"""Receives a case's description, its key and its size before the case runs."""


class _NothingTakenError(Exception):
    """The reference refused so many samples that the search for an accepted sample is given up."""

    final = True


@dataclass
class Trial:
    """The state of one check of one kernel, and the methods that the check calls.

    Attributes:
        subject: the operator and kernel.
        name: the name of the check.
        settings: the settings of the run.
        announce: called before every case, so that a crash can be attributed to its case.
        crashed: digests of cases that ended a process before: how it ended, and the failure code.
        replay: says whether to run one case alone.
        count: number of cases that ran.
        refused: number of sampled cases that the reference refused.
        refusal: the reference's message for the last refused case.
        error: the largest error so far, as a multiple of the tolerance; `None` before any
            comparison.
        notes: remarks for the report.
        route: the target and the route to it that the check tests; `None` in a check of no target.
        blame: the function that a failure is about, if it is not the kernel: ``backward:
            file.py:7``.
        wrong: the failure code for a wrong value, if there is a more specific code.
        raises: the failure code for an exception.
        cohort: the family that sampled cases belong to, for the report.
        tally: counts the cases that ran.
        due: counts the samples that were to run.
        threads: number of threads that the kernel runs with.
        caller: the process that the kernel runs in; `None` for this process.
        keep: number of results that are compared again after later calls.
        recalled: a case that failed in an earlier run, to be tried first.
        family: number of calls of `each` so far; identifies the current family of cases.
    """

    subject: Subject
    name: str
    settings: Settings = field(default_factory=Settings)
    announce: Announce = lambda description, key, size: None
    crashed: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    replay: Replay = field(default_factory=Replay)
    count: int = 0
    refused: int = 0
    refusal: str = ""
    error: float | None = None
    notes: list[str] = field(default_factory=list)
    route: tuple[Target, Route] | None = None
    blame: str = ""
    wrong: str = ""
    raises: str = "OPS-CALL-RAISED"
    cohort: str = "normal"
    tally: Tally = field(default_factory=Tally)
    due: Due = field(default_factory=Due)
    threads: int = field(default_factory=torch.get_num_threads)
    caller: Caller | None = None
    keep: int = 0
    recalled: Stored | None = None
    family: int = 0
    _sampled_seconds: float = 0.0
    _before: tuple[int, int] = (0, 0)
    _disagrees: bool = False
    _earlier: list[tuple[list[Tensor], list[Tensor]]] = field(default_factory=list)

    @property
    def operator(self) -> Operator:
        """The operator."""
        return self.subject.operator

    @property
    def signature(self) -> Signature:
        """The operator's signature."""
        return self.subject.signature

    @property
    def only_registered(self) -> bool:
        """Return whether every case is registered by the author or given by the user."""
        return self.operator.only_registered_cases or bool(self.settings.given)

    def some(self, part: int) -> int:
        """Return a fraction of the number of examples, at least 1.

        Args:
            part: divides the number of examples.
        """
        return max(1, self.settings.examples // part)

    # --- drawing cases -----------------------------------------------------------------------

    def each(
        self,
        body: Callable[[Case], None],
        *,
        dtypes: Sequence[str | None] | None = None,
        wanted: Wanted | None = None,
        examples: int | None = None,
        registered_cases: bool = True,
        most: int | None = None,
        keep: Callable[[Case], bool] | None = None,
        adapt: Callable[[Case], Case] | None = None,
    ) -> None:
        """Run `body` on the author's cases and on sampled cases.

        Args:
            body: raises `Failure`, or any other exception, if the case fails.
            dtypes: the generic dtypes to try; by default all of the kernel's.
            wanted: restricts the samples.
            examples: number of samples, shared among `dtypes`.
            registered_cases: whether to run the author's cases too.
            most: number of the author's cases to run, from small to large, leaving out huge cases.
            keep: returns whether to run a case.
            adapt: changes the author's cases before they run (their layouts).

        Raises:
            Failure: with the smallest case that fails.
        """
        every = tuple(dtypes) if dtypes is not None else self.subject.dtypes
        total = self.settings.examples if examples is None else examples
        self.family += 1
        self._recall(body, every, keep)
        share = max(1, round(total / len(every))) if total else 0
        for dtype in every:
            if registered_cases:
                self._author(body, dtype, most, keep, adapt, share)
            if not self.only_registered and total:
                strategy = cases(self.signature, replace(wanted or Wanted(), dtype=dtype))
                kept = strategy.filter(keep) if keep is not None else strategy
                self._sampled(
                    kept,
                    lambda case: self._one(body, case),
                    share,
                    dtype,
                    size_of,
                )
            if self.refused and not self.count:
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
        before = self.count
        for dtype in dtypes:
            by_author = pair_of(self.operator, self.author_cases(dtype))
            if by_author is not None:
                self._two(body, by_author)
            if self.only_registered or not examples:
                continue
            strategy = pairs(self.signature, replace(wanted, dtype=dtype)).filter(self._is_dynamic)
            self._sampled(
                strategy,
                lambda pair: self._two(body, pair),
                examples,
                dtype,
                lambda pair: size_of(pair[0]),
            )
        return self.count > before

    def author_cases(self, dtype: str | None) -> list[Case]:
        """Return the author's cases, the smallest first, or the cases that the user gave."""
        if self.settings.given:
            given = given_cases(self.operator, self.settings.given)
            return [case for case in given if case.dtype in (dtype, None)]
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
            self._one(body, case)

    def _author(
        self,
        body: Callable[[Case], None],
        dtype: str | None,
        most: int | None,
        keep: Callable[[Case], bool] | None,
        adapt: Callable[[Case], Case] | None,
        sampled: int,
    ) -> None:
        given = bool(self.settings.given)
        kept = [case for case in self.author_cases(dtype) if keep is None or keep(case)]
        if self.operator.only_registered_cases and most is None and not given:
            # When nothing is sampled, run the author's cases with further seeds instead.
            more = author_cases(self.operator, dtype, self.settings.seed, (1, 2))
            more = spread([case for case in more if keep is None or keep(case)], sampled)
            kept = sorted([*kept, *more], key=size_of)
        elif most is not None:
            kept = few_of(kept, most)
        for case in kept:
            self._one(body, adapt(case) if adapt is not None and not given else case)

    def _is_dynamic(self, pair: tuple[Case, Case]) -> bool:
        different = shapes_of(pair[0]) != shapes_of(pair[1])
        return different and all(has_no_small_size(self.operator, case) for case in pair)

    def _sampled(
        self,
        strategy: Any,
        test: Callable[[Any], None],
        examples: int,
        dtype: str | None,
        size: Callable[[Any], Any],
    ) -> None:
        self.due.add(examples)
        left = self.settings.seconds - self._sampled_seconds
        if left <= 0:
            self.due.run_out()
            if self.tally.has(dtype):
                self.due.untried += 1
                return
            # Try at least one case of every dtype, however little time is left.
            examples, left = 1, _LEAST_SECONDS
        # Give every check and dtype its own samples, independent of the other checks that run.
        seed = zlib.crc32(f"{self.settings.seed} {self.name} {dtype}".encode())
        started = time.monotonic()
        self._before = self.count, self.refused
        found = search(
            strategy,
            test,
            examples=examples,
            seed=seed,
            seconds=left,
            size=size,
            on_late=self.due.run_out,
        )
        self._sampled_seconds += time.monotonic() - started
        if found is not None and not isinstance(found[1], _NothingTakenError):
            raise found[1]

    def _one(self, body: Callable[[Case], None], case: Case) -> None:
        self.enter(case)
        if self.replay.alone and self.replay.alone != case.digest:
            return
        self.tally.begin("registered" if case.origin else self.cohort, case.dtype, case.numel)
        try:
            # Only the kernel itself runs with all threads: see `call`.
            with threads(1):
                body(case)
        except RefusedError as error:
            self._refuse(case, error)
        except Failure as failure:
            failure.case = failure.case or case
            raise
        except (Inapplicable, hypothesis.errors.HypothesisException):
            raise
        except Exception as error:
            raise Failure(raised(error), case, code=self.raises) from error

    def _two(self, body: Callable[[Case, Case], None], pair: tuple[Case, Case]) -> None:
        try:
            self._one(lambda first: body(first, pair[1]), pair[0])
        except Failure as failure:
            failure.beside = pair[1] if failure.case is pair[0] else None
            raise

    def _refuse(self, case: Case, error: RefusedError) -> None:
        self.count -= 1
        self.tally.withdraw()
        if case.origin == FAILED_BEFORE:  # it failed, and the author ruled it out since
            return
        if case.origin:
            raise Failure(
                f"the reference refuses a registered case: {error}",
                case,
                code="OPS-CASES-REFUSED",
            ) from error
        self.refused += 1
        self.refusal = str(error)
        count, refused = self._before
        if self.count == count and self.refused - refused >= _MOST_REFUSED:
            raise _NothingTakenError
        hypothesis.reject()

    def enter(self, case: Case, doing: str = "") -> None:
        """Count `case`, and announce that it is about to run.

        Raises:
            Failure: this case ended a process before.
        """
        self.count += 1
        self.announce_case(case, doing)

    def announce_case(self, case: Case, doing: str = "") -> None:
        """Announce that `case` is about to run, without counting it.

        Raises:
            Failure: this case ended a process before.
        """
        description = f"{case.describe()}; {doing}" if doing else case.describe()
        key = f"{case.digest} {doing}" if doing else case.digest
        if key in self.crashed:
            how, code = self.crashed[key]
            raise Failure(how, case, code=code)
        self.announce(description, key, case.numel)

    # --- calling and comparing ---------------------------------------------------------------

    def make(self, case: Case) -> dict[str, Any]:
        """Make the arguments of `case` anew, on the device where `run` expects them."""
        return case.make(self.subject.device if self.caller is None else HOST)

    def call(self, arguments: Mapping[str, Any]) -> Any:
        """Call the operator in this process through the dispatcher, with all threads."""
        assert self.caller is None, f"the kernel of check {self.name!r} runs in another process"
        positional, keywords = self.operator.split(arguments)
        with forking_fails(), threads(self.threads):
            return self.operator(*positional, **keywords)

    def run(self, arguments: Mapping[str, Any]) -> list[Tensor]:
        """Call the operator, and return its results and then the tensors that it wrote into.

        Raises:
            Failure: with `keep`, a result of an earlier call has changed.
        """
        if self.caller is not None:
            self.caller.keep, self.caller.raises = self.keep, self.raises
            return self.caller.run(
                self.operator, arguments, device=self.subject.device, threads=self.threads
            )
        found = flatten(self.signature, self.call(arguments), arguments)
        for results, copies in self._earlier:
            if not same_bits(results, copies):
                raise Failure(CHANGED, code="OPS-RESULT-REUSED")
        if self.keep:
            written = [p for p in self.signature.mutated if arguments[p.name] is not None]
            fresh = found[: len(found) - len(written)]
            self._earlier.append((fresh, [tensor.clone() for tensor in fresh]))
            del self._earlier[: -self.keep]
        return found

    def truth(self, case: Case) -> Expected:
        """Return the right results for `case`.

        Raises:
            RefusedError: the reference refuses the case.
        """

        def compute(known: Mapping[str, Any] | None) -> Expected:
            return expected_of(self.operator, case.values, known)

        truth = self.kept(case, compute)
        if not self._disagrees and any(how != layouts.CONTIGUOUS for how in case.layouts.values()):
            self._compare_reference(case, truth)
        return truth

    def kept(
        self,
        case: Case,
        compute: Callable[[Mapping[str, Any] | None], Truth],
        beside: Sequence[Tensor] | None = None,
    ) -> Truth:
        """Return the right results for `case`, reusing those of another row of the run if possible.

        Args:
            case: the arguments.
            compute: see `kept_truth`.
            beside: the incoming gradients, if the results are gradients.
        """
        if not (self.settings.truths and self.settings.shared) or case.sampled:
            return compute(None)
        # The right results do not depend on the memory layout of the arguments.
        plain = replace(case, layouts={}, same=(), shift=0)
        facts = [self.operator.name, plain.digest]
        if beside is not None:
            facts.append(replace(plain, values={"": list(beside)}).digest)
        return kept_truth(Path(self.settings.shared, "truths", key_of(facts)), compute)

    def _compare_reference(self, case: Case, truth: Expected) -> None:
        """Add a note if the reference itself gives different results for the layout of the case."""
        try:
            _, given = run_reference(self.operator, case.make())
        except Exception:
            return
        problem = compare(given, truth).problem
        if problem is not None:
            self._disagrees = True
            self.notes.append(
                "the reference disagrees with itself between memory layouts. Called with "
                f"{case.describe()}, {problem}. What it gives for contiguous copies is right here"
            )

    def accept(self, case: Case) -> None:
        """Run the reference on a sampled `case`, to make sure that it accepts the case.

        Raises:
            RefusedError: the reference refuses the case.
        """
        if case.sampled:
            require_accepted(self.operator, case.values)

    def compare(
        self, actual: Sequence[Tensor], truth: Expected, what: str = "", *, code: str = ""
    ) -> None:
        """Compare results with the right results, and remember the largest error.

        Args:
            actual: the kernel's results.
            truth: the right results.
            what: how the kernel was called; begins the message.
            code: the failure code for a wrong value; `wrong` by default.

        Raises:
            Failure: a result is outside its tolerance.
        """
        comparison = compare(actual, truth)
        self.error = max(self.error or 0.0, comparison.error)
        self.tally.error(comparison.error)
        if comparison.problem is not None:
            known = (code or self.wrong) if comparison.code.startswith("OPS-VALUE-") else ""
            raise Failure(
                f"{what}: {comparison.problem}" if what else comparison.problem,
                code=known or comparison.code,
            )

    def passed(self) -> tuple[Status, str]:
        """Return the status of a check without failures, and the reason if it was cut short."""
        if not self.due.late:
            return "passed", ""
        stopped = self.due.describe(self.count, self.settings.seconds)
        if self.due.suffices(self.count) or self.replay.alone:
            self.notes.append(stopped)
            return "passed", ""
        return "cut short", stopped

    def raised(self, error: BaseException) -> str:
        """Describe an exception of a call, with the innermost line that is the user's."""
        return raised(error)

    def about(self, what: str, function: object) -> None:
        """Attribute later failures to a function of the user's, if there is one."""
        self.blame = _where(what, function)

    @contextmanager
    def blaming(self, what: str, function: object) -> Iterator[None]:
        """Attribute failures inside the block to a function of the user's, if there is one."""
        try:
            yield
        except Failure as failure:
            failure.blame = failure.blame or _where(what, function)
            raise
        except (RefusedError, Inapplicable, hypothesis.errors.HypothesisException):
            raise
        except Exception as error:
            blamed = Failure(raised(error), code=self.raises)
            blamed.blame = _where(what, function)
            raise blamed from error

    def need(self, condition: object, reason: str) -> None:
        """State a precondition of the check.

        Raises:
            Inapplicable: the condition does not hold.
        """
        if not condition:
            raise Inapplicable(reason)


def _where(what: str, function: object) -> str:
    """Return ``what: file.py:7`` for the place of a function; empty without a function."""
    written = where_written(function)
    return f"{what}: {written}" if written else ""
