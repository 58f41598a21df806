"""The object that a check is handed, with the methods that the check calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from torch import Tensor

from opsmith.checks.cases.case import Case
from opsmith.checks.cases.failure import Failure, Inapplicable, raised
from opsmith.checks.cases.reruns.rerun_command import Replay
from opsmith.checks.cases.settings import Settings
from opsmith.checks.cases.subject import Subject
from opsmith.checks.cases.wanted import Wanted
from opsmith.checks.isolation.call_ways import PLAIN
from opsmith.checks.numerics.comparison import compare
from opsmith.checks.numerics.oracle import Expected
from opsmith.checks.report.case_counts import CaseCounts
from opsmith.checks.report.rows import Status
from opsmith.checks.trial.attribution import Attribution
from opsmith.checks.trial.case_runner import Announce, CaseRunner
from opsmith.checks.trial.case_sampler import CaseSampler
from opsmith.checks.trial.case_source import CaseSelection, CaseSource
from opsmith.checks.trial.kernel_caller import KernelCaller
from opsmith.checks.trial.truth_source import TruthSource
from opsmith.operators import Operator
from opsmith.signature import Signature

if TYPE_CHECKING:
    from opsmith.checks.isolation.kernel_client import Caller
    from opsmith.targets import Route, Target


#: The codes of calls that are not plain.
_NOT_PLAIN = (
    "OPS-GRADIENT-RAISED",
    "OPS-LAYOUT-STRIDE",
    "OPS-STATE-MODE",
    "OPS-TARGET-WRONG",
    "OPS-COMPILE-WRONG",
    "OPS-EXPORT-WRONG",
    "OPS-VMAP-WRONG",
    "OPS-SHARDING-WRONG",
    "OPS-PARALLEL-DIMS-CLAIM",
)

#: Errors of fewer tolerances are a matter of rounding.
_SLIGHT = 8


class Trial:
    """One check of one kernel: what the check calls, and the objects that do it.

    Attributes:
        replay: says whether to run one case alone.
        route: the target and the route to it that the check tests; `None` in a check of no target.
        counts: the counts of cases, refusals and errors.
        attribution: the function that failures are about, and the codes that they get.
        runner: runs the check's function on one case.
        truths: gives the right results.
    """

    # A check that sets an attribute of another name, such as `wrong` in place of
    # `attribution.wrong`, gets an error.
    __slots__ = (
        "attribution",
        "cases",
        "counts",
        "kernel",
        "name",
        "notes",
        "replay",
        "route",
        "runner",
        "settings",
        "subject",
        "truths",
    )

    def __init__(
        self,
        subject: Subject,
        name: str,
        settings: Settings | None = None,
        announce: Announce = lambda description, key, size: None,
        crashed: Mapping[str, tuple[str, str]] | None = None,
        replay: Replay | None = None,
        *,
        caller: Caller | None = None,
        keep: int = 0,
    ) -> None:
        """Begin a check.

        Args:
            announce: see `CaseRunner`.
            crashed: see `CaseRunner`.
            replay: says whether to run one case alone.
            caller: see `KernelCaller`.
            keep: see `KernelCaller`.
        """
        self.subject = subject
        self.name = name
        self.settings = settings or Settings()
        self.replay = replay or Replay()
        self.notes: list[str] = []
        self.route: tuple[Target, Route] | None = None
        self.counts = CaseCounts()
        self.attribution = Attribution()
        self.runner = CaseRunner(
            self.counts, self.attribution, announce, {} if crashed is None else crashed, self.replay
        )
        sampler = CaseSampler(name, self.settings, self.counts)
        self.cases = CaseSource(subject, self.settings, self.counts, self.runner, sampler)
        self.kernel = KernelCaller(subject, name, self.attribution, caller, keep)
        self.kernel.threads = self.settings.threads or self.kernel.threads
        self.truths = TruthSource(subject.operator, self.settings, self.notes)

    @property
    def operator(self) -> Operator:
        """The operator."""
        return self.subject.operator

    @property
    def signature(self) -> Signature:
        """The operator's signature."""
        return self.subject.signature

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
        selection = CaseSelection(dtypes, wanted, examples, registered_cases, most, keep, adapt)
        self.cases.each(body, selection)

    def sample(
        self, body: Callable[[Case], None], wanted: Wanted, examples: int, dtype: str | None = ""
    ) -> None:
        """Run `body` on sampled cases alone, in one dtype: by default, the kernel's favourite."""
        dtypes = (self.subject.favourite if dtype == "" else dtype,)
        self.each(body, dtypes=dtypes, wanted=wanted, examples=examples, registered_cases=False)

    # --- calling and comparing ---------------------------------------------------------------

    def make(self, case: Case) -> dict[str, Any]:
        """Make the arguments of `case` anew, on the device where `run` expects them."""
        return self.kernel.make(case)

    def call(self, arguments: Mapping[str, Any]) -> Any:
        """Call the operator in this process through the dispatcher, with all threads."""
        return self.kernel.call(arguments)

    def run(self, arguments: Mapping[str, Any]) -> list[Tensor]:
        """Call the operator, and return its results and then the tensors that it wrote into.

        Raises:
            Failure: with `kernel.keep`, a result of an earlier call has changed.
        """
        return self.kernel.run(arguments)

    def truth(self, case: Case) -> Expected:
        """Return the right results for `case`.

        Raises:
            RefusedError: the reference refuses the case.
        """
        return self.truths.truth(case)

    def accept(self, case: Case) -> None:
        """Run the reference on a sampled `case`, to make sure that it accepts the case.

        Raises:
            RefusedError: the reference refuses the case.
        """
        self.truths.accept(case)

    def compare(
        self, actual: Sequence[Tensor], truth: Expected, what: str = "", *, code: str = ""
    ) -> None:
        """Compare results with the right results, and remember the largest error.

        Args:
            actual: the kernel's results.
            truth: the right results.
            what: how the kernel was called; begins the message.
            code: the failure code for a wrong value; `attribution.wrong` by default.

        Raises:
            Failure: a result is outside its tolerance.
        """
        comparison = compare(actual, truth)
        self.counts.record_error(comparison.error)
        # An operator may return nothing.
        self.counts.compared += comparison.elements if truth.names else 1
        if comparison.problem is not None:
            wrong = code or self.attribution.wrong
            rounds = comparison.code == "OPS-VALUE-ACCUMULATION" or comparison.error < _SLIGHT
            # Blame no size: of many elements one is rounded far off, and other sums are as wrong.
            if rounds and wrong.startswith("OPS-SIZE-"):
                wrong = ""
            known = wrong if comparison.code.startswith("OPS-VALUE-") else ""
            raise Failure(
                f"{what}: {comparison.problem}" if what else comparison.problem,
                code=known or comparison.code,
            )

    # --- what the check comes to -------------------------------------------------------------

    def cause_of(self, failure: Failure) -> Failure:
        """Return the failure of a plain call of the case, if that is wrong too; else `failure`.

        Only where a plain call is right, a runtime or a transform is to blame.
        """
        case = failure.run_with or failure.case
        blamed = failure.blame or self.attribution.blame
        if case is None or blamed or failure.crashed:
            return failure
        laid_out = case.is_strided and failure.code in ("OPS-CALL-RAISED", "OPS-VALUE-WRONG")
        if failure.code not in _NOT_PLAIN and not laid_out:
            return failure
        case = case.with_layouts({})
        self.attribution.wrong, self.attribution.raises = "", "OPS-CALL-RAISED"
        self.kernel.way = PLAIN
        try:
            with self.attribution.blaming("", None):
                found = self.run(self.make(case))
            self.compare(found, self.truth(case), "called plainly")
        except Failure as plain:
            plain.case = case
            return plain
        except Exception:
            return failure
        failure.code = "OPS-LAYOUT-STRIDE" if laid_out else failure.code
        return failure

    def passed(self) -> tuple[Status, str]:
        """Return the status of a check without failures, and the reason if it was cut short.

        Raises:
            Inapplicable: results were compared, and none had an element.
        """
        stopped = self.counts.stopped(self.settings.seconds)
        if not stopped:
            cases = self.counts.ran
            empty = self.counts.error is not None and not self.counts.compared
            self.need(not empty, f"no result of {cases} cases has an element to compare")
            self.notes += filter(None, [self.counts.undrawn()])
            return "passed", ""
        if self.replay.alone:
            self.notes.append(stopped)
            return "passed", ""
        # However many cases ran: a kernel that sleeps would choose which of them are left out.
        return "cut short", stopped

    raised = staticmethod(raised)

    def need(self, condition: object, reason: str) -> None:
        """State a precondition of the check.

        Raises:
            Inapplicable: the condition does not hold.
        """
        if not condition:
            raise Inapplicable(reason)
