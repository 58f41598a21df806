"""`judge`: draw cases, run them in another process, compare the results, and decide."""

from __future__ import annotations

import json
import random
import secrets
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor

from opsmith.checks.cases.case import Case
from opsmith.checks.cases.failure import DEPENDS, Failure, Inapplicable
from opsmith.checks.cases.settings import Settings
from opsmith.checks.cases.subject import REFERENCE
from opsmith.checks.catalogue.claims.batch_invariance import batch_invariance
from opsmith.checks.catalogue.values import empty_sizes, memory_layouts, reference
from opsmith.checks.numerics.oracle import Expected, RefusedError
from opsmith.checks.numerics.torch_threads import threads
from opsmith.checks.report.rows import Row, Status
from opsmith.checks.run_report import Report
from opsmith.checks.trial.case_source import explain_no_case
from opsmith.checks.trial.trial import Trial
from opsmith.errors import INCOMPLETE, NOT_SANDBOXED, LoadError, OpsmithError
from opsmith.judge.closed import closed, unreadable
from opsmith.judge.judged import JudgedSubject, JudgeTrial
from opsmith.judge.program import Program
from opsmith.judge.session import Limits, Placement, Session
from opsmith.judge.snapshot import Files, Snapshot, TooLargeError, collect, share
from opsmith.judge.specification import imported, read_spec
from opsmith.kernels import HOST
from opsmith.operators import Operator
from opsmith.operators.core.arguments import map_tensors
from opsmith.sources.importing import end_import
from opsmith.system.processes.sandbox.policy import unavailable
from opsmith.system.scratch import held_folder

_KERNEL = "candidate"
#: Codes of results that a result of an earlier call may explain.
_OF_VALUES = ("OPS-VALUE-", "OPS-LAYOUT-", "OPS-SIZE-", "OPS-ARGUMENT-")
#: The fewest compared calls that look for a result that earlier calls made wrong. The seed decides
#: how many there are, up to twice as many.
_COMPARED = 400
#: Fewest calls in a row, and the most that are made at once with only the last result compared.
_CALLS, _GROUP = 3_200, 24
#: The fraction of a call's time limit that a group of calls may take.
_GROUP_SHARE = 0.25
#: One in so many groups of calls runs with all threads, the others with one. On a busy machine,
#: waking a thread takes a thousand times as long as a small call.
_WITH_ALL_THREADS = 8
#: Number of cases among which the repeated calls alternate.
_CASES = 6
#: Number of sampled cases that a program calls the kernel with, besides the author's cases.
_IN_PROGRAM = 30


class NothingJudgedError(OpsmithError):
    """Raised if there is nothing to judge; the message gives the reason."""

    exit_code = INCOMPLETE


class NotSandboxedError(OpsmithError):
    """Raised if a candidate would run without a sandbox; the message says why there is none."""

    exit_code = NOT_SANDBOXED


@dataclass(frozen=True)
class Verdict:
    """The result of judging a candidate.

    Attributes:
        report: a row for each operator and check.
        seed: the seed of the cases; the candidate never received it.
        digests: the SHA-256 digest of each file that was judged, by path: of the two files that
            were given, and of the files beside them that they name.
        not_sandboxed: why the candidate ran without a sandbox; empty if it ran in one.
        of_spec: the files of `digests` that the specification alone named.
    """

    report: Report
    seed: int
    digests: Mapping[str, str]
    not_sandboxed: str = ""
    of_spec: Collection[str] = ()

    @property
    def accepted(self) -> bool:
        """Return whether every operator was judged, and nothing failed or was cut short."""
        return self.report.ok

    @property
    def outcome(self) -> str:
        """Return ``"accepted"``, ``"refused"``, or ``"undecided"`` if time or cases ran out."""
        return {"passed": "accepted", "failed": "refused"}.get(self.report.outcome, "undecided")

    def to_json(self) -> str:
        """Return the verdict as JSON text."""
        document = {
            "accepted": self.accepted,
            "files": dict(self.digests),
            "sandboxed": not self.not_sandboxed,
            **json.loads(self.report.to_json()),
        }
        return json.dumps(document, indent=2, allow_nan=False)


def judge(
    spec: str | Path | Files,
    candidate: str | Path | Files,
    *,
    seed: int | None = None,
    examples: int = 60,
    seconds: float = 60.0,
    time_limit: float = 60.0,
    deadline: float = 3600.0,
    trust_candidate: bool = False,
    first: bool = False,
    beside: int = 1,
    progress: Callable[[int, int, str], None] | None = None,
    on_row: Callable[[Row], None] | None = None,
) -> Verdict:
    """Judge kernels against declarations that the kernels' author has no control over.

    Args:
        spec: a Python file that declares operators: declaration, reference and cases; or a
            definition of FlashInfer-Bench (see `opsmith.judge.definition`). Trusted. It may come
            by value, as `read_spec` returns it.
        candidate: a Python file that registers kernels for the device type ``"cpu"``, or that file
            by value. Only another process imports it.
        seed: decides every sample; a fresh seed by default.
        examples: number of cases that a check samples, shared among the dtypes.
        seconds: after this long a check samples no further case.
        time_limit: the seconds that one call may take; importing and compiling get ten times that.
        deadline: the seconds that all calls may take together.
        trust_candidate: run the candidate also if this machine grants no sandbox.
        first: end with the first failure of each operator.
        beside: number of candidates that this machine judges at a time, which share its memory.
        progress: called before each row, and at the end.
        on_row: called with each row as soon as it is done.

    Raises:
        NotSandboxedError: this machine grants no sandbox, and the candidate is not trusted.
        NothingJudgedError: the candidate registers no kernel for an operator of `spec`.
        LoadError: a file is missing, or `spec` cannot be imported or declares no operator.
    """
    end_import("opsmith.judge.judge")
    for path in (spec, candidate):
        if not isinstance(path, Files) and not Path(path).is_file():
            raise LoadError(f"no such file: {path}")
    missing = require_sandbox(trust_candidate)
    seed = secrets.randbits(48) if seed is None else seed
    with ExitStack() as stack:
        # The folder's name must not tell a candidate that it is judged.
        place = stack.enter_context(held_folder(Path(tempfile.gettempdir()), "tmp", ""))
        stated = spec if isinstance(spec, Files) else read_spec(Path(spec))
        files = stated.copy_to(place / "spec")
        operators = stack.enter_context(imported(files))
        run = _Run(operators, Report([], seed), on_row, first)
        try:
            by_value = candidate if isinstance(candidate, Files) else collect(Path(candidate))
            together = by_value.root == files.original
            given = by_value.copy_to(place / ("spec" if together else "kernels"))
            share(given, files.root)
        except (TooLargeError, LoadError) as error:
            run.refuse(Failure(str(error), code="OPS-JUDGE-IMPORT"))
            return Verdict(run.report, seed, files.digests, missing, files.digests.keys())
        digests = files.digests | given.digests
        of_spec = files.digests.keys() - given.digests.keys()
        run.copies = (files, given)
        stack.enter_context(closed(files))
        if missing:
            stack.enter_context(unreadable())
        limits = Limits(time_limit, deadline, namespaces=not missing, beside=beside)
        where = Placement(files, given, limits)
        session = stack.enter_context(Session(where))
        program = stack.enter_context(Program(where, place / "main"))
        try:
            run.kernels = session.kernels()
        except Failure as failure:
            run.refuse(failure)
            return Verdict(run.report, seed, digests, missing, of_spec)
        if not any(operator.name in run.kernels for operator in operators):
            names = ", ".join(operator.name for operator in operators)
            kernels, of = (
                next(iter(one.digests)) if isinstance(one, Files) else one
                for one in (candidate, spec)
            )
            raise NothingJudgedError(
                f"{kernels} registers no kernel for the CPU for any operator of {of} ({names})"
            )
        settings = Settings(seed, examples, seconds, time_limit)
        plan = [
            (operator, name)
            for operator in operators
            for name in _CHECKS
            if name != _INVARIANCE or operator.signature.batch_invariant
        ]
        for done, (operator, name) in enumerate(plan):
            if progress is not None:
                progress(done, len(plan), f"{operator.name} {name}")
            run.check(operator, name, settings, session, program)
        if progress is not None:
            progress(len(plan), len(plan), "")
        return Verdict(run.report, seed, digests, missing, of_spec)


def require_sandbox(trust_candidate: bool) -> str:
    """Return why a trusted candidate gets no sandbox here, or an empty text; refuse any other."""
    missing = unavailable()
    if missing and not trust_candidate:
        raise NotSandboxedError(
            f"the candidate is not judged, since this machine grants no sandbox ({missing}). Allow "
            "user namespaces, or run the command in a container or a virtual machine of its own "
            "with --trust-candidate."
        )
    return missing


@dataclass
class _Run:
    """The rows of a run, and what they are about.

    Attributes:
        operators: the operators of the specification.
        report: the report that gets the rows.
        on_row: called with each row.
        first: whether the first failure of an operator is its last row.
        kernels: the operators that the candidate has kernels for, with the dtypes of each.
        copies: the copied files, whose places messages do not show.
        asked: the calls that a program makes by now.
    """

    operators: Sequence[Operator]
    report: Report
    on_row: Callable[[Row], None] | None
    first: bool = False
    kernels: Mapping[str, tuple[str, ...] | None] = field(default_factory=dict)
    copies: Sequence[Snapshot] = ()
    asked: tuple[Trial, list[tuple[Case, Expected]]] | None = None

    def add(self, row: Row) -> None:
        """Add a row to the report."""
        message, case = row.message, row.case
        for copy in self.copies:
            message, case = copy.named_as_given(message), copy.named_as_given(case)
        row = replace(row, message=message, case=case)
        self.report.rows.append(row)
        if self.on_row is not None:
            self.on_row(row)

    def refuse(self, failure: Failure) -> None:
        """Refuse the candidate for a reason that concerns every operator."""
        for operator in self.operators:
            self.add(_row(operator, "import", "failed", str(failure), failure.code))

    def check(
        self, operator: Operator, name: str, settings: Settings, session: Session, program: Program
    ) -> None:
        """Add the row of a check of an operator, unless there is nothing to check."""
        if operator.name not in self.kernels:
            if name == "reference":
                message = "the candidate registers no kernel for it"
                self.add(_row(operator, name, "failed", message, "OPS-JUDGE-MISSING"))
        elif self.first and self.is_refused(operator):
            return
        elif name == "program" and self.is_refused(operator):
            self.add(_row(operator, name, "not applicable", "it is refused already", ""))
        else:
            # A candidate may be right in some processes only, such as the first that imports it.
            session.renew()
            trial = self._trial(operator, name, settings, session)
            check = _CHECKS[name]
            if name == "reference":
                trial.once_right = partial(self.ask_ahead, operator, settings, session, program)
            if name == "program":
                trial, known = self.asked or (trial, None)
                self.asked = None
                check = partial(_program, program=program, known=known)
            self.add(_judged(trial, check, session.renew))

    def ask_ahead(
        self, operator: Operator, settings: Settings, session: Session, program: Program
    ) -> None:
        """Have a program make its calls while other checks run."""
        self.asked = None
        trial = self._trial(operator, "program", settings, session)
        # The row meets an exception again, and tells it.
        with suppress(Exception), threads(1):
            known = _known(trial)
            program.ask_ahead(operator, [case.make() for case, _ in known])
            self.asked = (trial, known)

    def _trial(self, operator: Operator, name: str, settings: Settings, session: Session) -> Any:
        subject = JudgedSubject(operator, REFERENCE, HOST, own=self.kernels[operator.name])
        return JudgeTrial(subject, name, settings, caller=session, keep=1)

    def is_refused(self, operator: Operator) -> bool:
        """Return whether a check of an operator has failed."""
        return any(row.operator == operator.name for row in self.report.failures)


def _judged(trial: Trial, run: Callable[[Any], None], renew: Callable[[], None]) -> Row:
    started = time.monotonic()
    operator = trial.operator
    status: Status = "passed"
    message, case, code = "", "", ""
    try:
        if not trial.subject.dtypes:
            raise Failure(
                f"the candidate's kernel has no dtype of the declaration; it has "
                f"{', '.join(trial.subject.own or ())}",  # type: ignore[attr-defined]
                code="OPS-JUDGE-DTYPE",
            )
        # Only the candidate's process computes with all threads: see `_again`.
        with threads(1):
            run(trial)
        if trial.counts.ran:
            status, message = trial.passed()
        else:
            # The specification is the reason, not the candidate.
            status = "not run"
            message = explain_no_case(operator, trial.settings, trial.counts)
    except Inapplicable as reason:
        status, message = "not applicable", str(reason)
    except Failure as failure:
        status, message, code = "failed", str(failure), failure.code
        case = failure.case.describe() if failure.case is not None else ""
        if failure.case and code.startswith(_OF_VALUES) and _is_right_first(trial, failure, renew):
            message, code = f"{message}\n{DEPENDS}", "OPS-STATE-EARLIER"
    except Exception as error:
        status, message, code = "failed", trial.raised(error), trial.attribution.raises
    generic = operator.signature.generic
    lacks = [name for name in generic.names if name not in trial.subject.dtypes] if generic else []
    if lacks and trial.name == "reference":
        trial.notes.append(f"the candidate has no kernel for {', '.join(lacks)}")
    return replace(
        _row(operator, trial.name, status, message, code),
        cases=trial.counts.ran,
        error=trial.counts.error,
        seconds=time.monotonic() - started,
        case=case,
        notes=tuple(dict.fromkeys(trial.notes)),
        samples=trial.counts.tally.samples(),
    )


def _is_right_first(trial: Trial, failure: Failure, renew: Callable[[], None]) -> bool:
    """Return whether the case of a failure passes as the first call of a process."""
    assert failure.case is not None
    renew()
    try:
        trial.compare(trial.run(failure.case.make()), trial.truth(failure.case))
    except Exception:
        return False
    return True


def _row(operator: Operator, check: str, status: Status, message: str, code: str) -> Row:
    return Row(operator.name, _KERNEL, check, status, message=message, code=code)


# --- calls that follow each other ----------------------------------------------------------------


def _again(trial: Trial) -> None:
    """Make many calls that reuse memory with other contents, and compare each result."""
    known: list[tuple[Case, Expected]] = []

    def keep(case: Case) -> None:
        if len(known) >= 3 * _CASES:
            return
        for variant in _variants(case):
            try:
                known.append((variant, trial.truth(variant)))
            except RefusedError:
                if variant is case:
                    raise

    trial.each(keep, dtypes=(trial.subject.favourite,), examples=_CASES, most=_CASES)
    trial.need(known, "there is no case to repeat")
    start, every = 0, trial.kernel.threads
    order = random.Random(trial.settings.seed)
    compared, made, slowest = _COMPARED + order.randrange(_COMPARED), 0, 1e-3
    while compared > 0 or made < _CALLS:
        # Calls with similar cases follow each other, so that memory is reused with other contents.
        if compared % 8 == 0:
            start = order.randrange(len(known))
        case, truth = known[(start + order.randrange(3)) % len(known)]
        most = int(trial.settings.time_limit * _GROUP_SHARE / slowest)
        trial.kernel.repeats = min(order.randrange(_GROUP), most)
        trial.kernel.threads = 1 if order.randrange(_WITH_ALL_THREADS) else every
        started = time.monotonic()
        made += 1 + trial.kernel.repeats
        compared -= 1
        trial.counts.ran += 1
        trial.counts.tally.begin("again", case.dtype, case.numel)
        try:
            what = f"call {made} in a row"
            trial.compare(trial.run(case.make()), truth, what, code="OPS-STATE-EARLIER")
        except Failure as failure:
            failure.case = failure.case or case
            raise
        slowest = max(slowest, (time.monotonic() - started) / (1 + trial.kernel.repeats))
    trial.kernel.repeats, trial.kernel.threads = 0, every


def _variants(case: Case) -> Iterator[Case]:
    """Yield a case, and cases of the same shapes with rotated floating values."""
    yield case
    for first in (0, 1):
        turn = partial(_turned, first=first)
        if any(turn(tensor) is not tensor for _, tensor in case.tensors()):
            values = {name: map_tensors(value, turn) for name, value in case.values.items()}
            yield replace(case, values=values)


def _turned(tensor: Tensor, first: int) -> Tensor:
    """Return a floating tensor with its elements from `first` on rotated by one place."""
    if not tensor.is_floating_point() or tensor.numel() < first + 2:
        return tensor
    flat = tensor.contiguous().reshape(-1).clone()
    flat[first:] = flat[first:].roll(1)
    return flat.reshape(tensor.shape)


# --- calls in a program --------------------------------------------------------------------------


def _known(trial: Trial) -> list[tuple[Case, Expected]]:
    """Return the cases of a program, in order, with their right results."""
    known: list[tuple[Case, Expected]] = []
    trial.each(lambda case: known.append((case, trial.truth(case))), examples=_IN_PROGRAM)
    trial.need(known, "there is no case to call it with")
    return _in_order(known, trial.settings.seed)


def _program(
    trial: Trial, program: Program, known: list[tuple[Case, Expected]] | None = None
) -> None:
    """Call the kernel in a program of its own, in which a candidate finds no trace of the judge."""
    known = known or _known(trial)
    every = program.run_all(trial.operator, [case.make() for case, _ in known])
    for (case, truth), results in zip(known, every, strict=True):
        try:
            trial.compare(results(), truth, "in a program", code="OPS-JUDGE-PROGRAM")
        except Failure as failure:
            failure.case = failure.case or case
            raise


def _in_order(known: Sequence[tuple[Case, Expected]], seed: int) -> list[tuple[Case, Expected]]:
    """Return cases in an order that the seed decides, those with empty arguments last.

    Any result is right for empty arguments, so a kernel that is wrong in its first call alone
    would pass if the first case were empty.
    """
    shuffled = random.Random(seed).sample(known, len(known))
    return sorted(shuffled, key=lambda pair: not pair[0].numel)


#: The row that an operator has whose specification claims it.
_INVARIANCE = "batch-invariance"
_CHECKS: dict[str, Callable[..., None]] = {
    "reference": reference,
    "layouts": memory_layouts,
    "empty-sizes": empty_sizes,
    _INVARIANCE: batch_invariance,
    "again": _again,
    "program": _program,
}
