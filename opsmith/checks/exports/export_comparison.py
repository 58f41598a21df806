"""Compare the exports of one row: with dynamic sizes, and with combinations of constants.

Since an export takes a while, all calls go into one model. If that model is refused or does not
run, each call is exported by itself, to find out which call is the cause.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from torch import Tensor

from opsmith.checks.cases.case import Case
from opsmith.checks.cases.failure import Failure, Inapplicable
from opsmith.checks.cases.reruns.registered_cases import shown_shapes
from opsmith.checks.exports.constant_coverage import Telling, shown_facts
from opsmith.checks.exports.wrapper_modules import (
    OneCall,
    PureCall,
    SeveralCalls,
    dynamic_shapes,
    fixed_shape,
)
from opsmith.checks.numerics.oracle import Expected, RefusedError
from opsmith.checks.trial.trial import Trial
from opsmith.errors import ArtifactError, ExportError, OpsmithError
from opsmith.operators.core.arguments import flatten
from opsmith.system.scratch import scratch_folder
from opsmith.system.stopwatch import spending
from opsmith.targets import LoadedModel, ModelProof, Target, export, load


class _CannotError(Exception):
    """Raised if a model cannot be exported (caused by an `ExportError`), or does not run."""

    def failure(self, case: Case, *, dynamic: bool = False) -> Failure:
        """Return the failure to report if nothing excuses this error."""
        exported = not isinstance(self.__cause__, ExportError)
        code = "OPS-TARGET-RAISED" if exported else "OPS-TARGET-EXPORT"
        failed = Failure(str(self), case, code=code)
        failed.run_with = case if dynamic else None
        return failed


class ModelExports:
    """Exports models that call an operator, and compares their results.

    Args:
        telling: the calls whose numbers, flags, strings and absent arguments are compared.
    """

    def __init__(self, trial: Trial, target: Target, proof: ModelProof, telling: Telling) -> None:
        self._trial = trial
        self._target = target
        self._proof = proof
        self._untold = telling.untold
        self._waiting = list(telling.cases)
        self._count = 0
        self._ran = False
        self._refused: dict[str, list[str]] = {}
        self._failure: Failure | None = None

    def compare(self, cases: list[Case]) -> None:
        """Export the first of `cases`, and run all of them; with several, sizes are dynamic."""
        # Export the telling cases along with the first `cases` only: their results do not depend on
        # `cases`.
        waiting, self._waiting = self._waiting, []
        if waiting:
            try:
                self._run(cases, waiting)
            except _CannotError:
                self._combinations(waiting)
            except RefusedError:
                self._waiting = waiting
                raise
            else:
                self._count += len(waiting)
                return
        self._sizes(cases)

    def finish(self) -> None:
        """Add notes on what was exported, and what could not be."""
        if self._waiting:
            self._combinations(self._waiting)
        if self._failure is not None:
            raise self._failure
        if not self._ran:
            raise Inapplicable(next(iter(self._refused), "the reference accepts no sample"))
        notes = self._trial.notes
        if self._count:
            notes.append(f"compared {self._count} combinations of what an export fixes")
        for reason, given in self._refused.items():
            for_ = f" for {' and for '.join(given)}" if any(given) else ""
            notes.append(f"not exported{for_}: {reason}")
        if self._untold:
            names = " or ".join(map(repr, self._untold))
            notes.append(f"no two cases show what {names} does; register_cases can give some")

    def _combinations(self, telling: Sequence[Case]) -> None:
        """Export only telling cases: together if possible, otherwise one by one."""
        try:
            self._run([], telling)
            self._count += len(telling)
        except _CannotError as error:
            if len(telling) > 1:
                for case in telling:
                    self._combinations([case])
            elif self._proof.may_refuse and isinstance(error.__cause__, ExportError):
                self._note_refused(error.__cause__, telling[0])
            else:
                self._failure = self._failure or error.failure(telling[0])
        except Failure as failure:
            self._failure = self._failure or failure

    def _sizes(self, cases: list[Case]) -> None:
        dynamic = len(cases) > 1
        try:
            self._run(cases, [])
        except _CannotError as error:
            cause = error.__cause__
            excused = self._proof.may_fix if dynamic else self._proof.may_refuse
            if not excused or not isinstance(cause, ExportError):
                raise error.failure(cases[0], dynamic=dynamic) from cause
            if dynamic:
                self._trial.notes.append(f"exported fixed sizes: {_reason(cause)}")
                self._sizes(cases[:1])
            else:
                self._note_refused(cause, cases[0])

    def _note_refused(self, error: ExportError, case: Case) -> None:
        given = self._refused.setdefault(_reason(error), [])
        if shown_facts(case) not in given:
            given.append(shown_facts(case))

    def _run(self, cases: Sequence[Case], telling: Sequence[Case]) -> None:
        """Export one model, and compare its results.

        Args:
            cases: arguments of the model's first call; the model runs once for each case. With
                several cases, the sizes are dynamic.
            telling: arguments of the model's other calls; `finish` raises their failures.
        """
        first = list(cases[:1])
        truths = {id(case): self._trial.truth(case) for case in (*cases, *telling)}
        for truth in truths.values():
            truth.beside_one = self._proof.beside_one
        if telling:
            self._announce([*first, *telling])
        with scratch_folder("check") as folder:
            try:
                calls = [*first, *telling]
                model = self._export(calls, Path(folder, "artifact"), dynamic=len(cases) > 1)
            except (ExportError, ArtifactError) as error:
                what = "the export" if isinstance(error, ExportError) else self._proof.what
                raise _CannotError(f"{what} {self._trial.raised(error)}") from error
            for number, case in enumerate(cases or [None]):
                given = [*([case] if case is not None else []), *telling]
                try:
                    found = self._results(model, given)
                except (OpsmithError, RuntimeError) as error:
                    text = f"{self._proof.what} {self._trial.raised(error)}"
                    raise _CannotError(text) from error
                self._ran = True
                for one, results in zip(given, found, strict=True):
                    if one is case:
                        changing = len(cases) > 1
                        self._compare_one(one, results, truths[id(one)], changing=changing)
                    elif number == 0:
                        self._trial.counts.ran += 1
                        self._compare_telling(one, results, truths[id(one)])

    def _announce(self, calls: Sequence[Case]) -> None:
        """Announce a model's calls; refuse a model of which a call ended a process before."""
        first, *others = calls
        try:
            more = f"in one model with {len(others)} other calls" if others else ""
            self._trial.runner.announce_case(first, more)
        except Failure as failure:
            if others:
                raise _CannotError(str(failure)) from failure
            raise

    def _compare_one(
        self, case: Case, results: list[Tensor], truth: Expected, *, changing: bool
    ) -> None:
        what = f"{self._proof.what}, run with {shown_shapes(case)}"
        try:
            self._trial.compare(results, truth, what)
        except Failure as failure:
            failure.run_with = case if changing else None
            raise

    def _compare_telling(self, case: Case, results: list[Tensor], truth: Expected) -> None:
        given = shown_facts(case)
        what = f"{self._proof.what}, run with {shown_shapes(case)}{', ' if given else ''}{given}"
        try:
            self._trial.compare(results, truth, what)
        except Failure as failure:
            failure.case = case
            self._failure = self._failure or failure

    @spending("compiling")
    def _export(self, cases: Sequence[Case], out: Path, *, dynamic: bool) -> LoadedModel:
        trial = self._trial
        call = PureCall if self._proof.functional else OneCall
        groups = [case.make(trial.subject.device) for case in cases]
        shapes = [
            dynamic_shapes(trial.signature, group)
            if dynamic and number == 0
            else list(map(fixed_shape, group.values()))
            for number, group in enumerate(groups)
        ]
        export(
            SeveralCalls([call(trial.operator, list(group)) for group in groups]).eval(),
            tuple(list(group.values()) for group in groups),
            target=self._target.name,
            out=out,
            dynamic_shapes=(tuple(shapes),) if dynamic else None,
            verify=False,
            say=None,
            **self._proof.options(trial.operator),
        )
        loaded = load(out)
        assert isinstance(loaded, LoadedModel)
        return loaded

    def _results(self, model: LoadedModel, cases: Sequence[Case]) -> list[list[Tensor]]:
        trial = self._trial
        groups = [case.make(trial.subject.device) for case in cases]
        returned = self._proof.run(model, [list(group.values()) for group in groups])
        if self._proof.functional:
            return [[value for value in one if isinstance(value, Tensor)] for one in returned]
        pairs = zip(returned, groups, strict=True)
        return [flatten(trial.signature, one, group) for one, group in pairs]


def _reason(error: ExportError) -> str:
    """Return the first line that is not empty, and the line that names a place in the reference."""
    first, *rest = [line for line in str(error).splitlines() if line.strip()]
    # PyTorch's own message follows a line of opsmith's that ends with a colon.
    more = rest[:1] if first.endswith(":") else [line for line in rest[:1] if "  at " in line[:5]]
    return " ".join([first, *(line.strip() for line in more)])
