"""Every runtime computes the same: one check for each way that a target offers to prove."""

from __future__ import annotations

import functools
import tempfile
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from opsmith.checks.case import Case
from opsmith.checks.one_call_models import OneCall, PureCall, dynamic_shape
from opsmith.checks.protocol import Failure, Inapplicable, check
from opsmith.checks.sampling import DYNAMIC_SIZES, Wanted
from opsmith.checks.trial import Trial, shown_shapes
from opsmith.checks.truth import RefusedError
from opsmith.errors import ExportError, OpsmithError
from opsmith.operators.arguments import describe, flatten
from opsmith.signature.binding import bind
from opsmith.targets import (
    DirectProof,
    LoadedModel,
    LoadedOperators,
    ModelProof,
    OperatorProof,
    Route,
    Target,
    all_targets,
    export,
    load,
)

#: The rows of targets come last, those of one target together.
_FIRST = 200
_SMALL = Wanted(sizes=(2, 3, 4, 5), max_elements=512)
_DYNAMIC = Wanted(sizes=DYNAMIC_SIZES, distinct=True, max_elements=4096)
#: Of the author's cases, for a proof that takes every dtype.
_MOST = 8


def _require(trial: Trial, target: Target, proof: Route) -> tuple[str | None, ...]:
    """The dtypes in which the operator can go the way of `proof`, the favourite first."""
    obstacle = proof.obstacle(trial.operator, trial.subject.implementation)
    trial.need(obstacle is None, str(obstacle))
    missing = target.available()
    trial.need(missing is None, str(missing))
    dtypes = (trial.subject.favourite, *trial.subject.dtypes)
    found = tuple(dict.fromkeys(name for name in dtypes if name not in proof.lacks))
    trial.need(found, f"{target.title} has no {', '.join(map(str, trial.subject.dtypes))}")
    return found


# --- in every dtype ------------------------------------------------------------------------------


def _direct(target: Target, proof: DirectProof, trial: Trial) -> None:
    dtypes = _require(trial, target, proof)
    _each(trial, proof, proof.opened(trial.operator), dtypes)


def _exported_operator(target: Target, proof: OperatorProof, trial: Trial) -> None:
    dtypes = _require(trial, target, proof)
    operator = trial.operator
    with tempfile.TemporaryDirectory(prefix="opsmith-check-") as folder:
        out = Path(folder, "artifact")
        settings = proof.options(operator)
        try:
            export(operator, target=target.name, out=out, verify=False, say=None, **settings)
            loaded = load(out)
        except OpsmithError as error:
            raise Failure(f"the export {trial.raised(error)}") from error
        assert isinstance(loaded, LoadedOperators)
        _each(trial, proof, functools.partial(proof.run, loaded, operator), dtypes)


def _each(
    trial: Trial,
    proof: Route,
    run: Callable[[Mapping[str, Any]], Sequence[Tensor]],
    dtypes: Sequence[str | None],
) -> None:
    """Compare what `run` gives with what is right, in every dtype."""

    def one(case: Case) -> None:
        truth = trial.truth(case)
        try:
            found = run(case.make())
        except (OpsmithError, RuntimeError) as error:
            raise Failure(f"{proof.what} {trial.raised(error)}") from error
        trial.compare(found, truth, f"in {proof.what}")

    trial.each(
        one, dtypes=dtypes, examples=trial.some(3), most=_MOST, keep=_writes_are_there(trial)
    )


def _writes_are_there(trial: Trial) -> Callable[[Case], bool]:
    """Leaves out cases without a mutated argument, which has no place among the results then."""
    names = [parameter.name for parameter in trial.signature.mutated]
    return lambda case: all(case.values[name] is not None for name in names)


# --- by an exported model ------------------------------------------------------------------------


def _exported(target: Target, proof: ModelProof, trial: Trial) -> None:
    dtypes = _require(trial, target, proof)[:1]
    # The ways to one target have the same samples, so that what was compiled for one serves all.
    trial.name = target.name

    def dynamic(first: Case, second: Case) -> None:
        if proof.may_fix and not first.origin and not _all_differ(first):
            # A reference that branches on whether two sizes are equal is fixed to the branch.
            raise RefusedError("two sizes are equal")
        _compare(trial, target, proof, [first, second], dynamic=True)

    def static(case: Case) -> None:
        _compare(trial, target, proof, [case], dynamic=False)

    # One export is enough, as each takes a while: of the author's cases where two are alike.
    if not any(
        trial.each_pair(dynamic, dtypes=dtypes, wanted=_DYNAMIC, examples=examples)
        for examples in (0, 1)
    ):
        trial.notes.append("no two registered cases differ in sizes alone: exported fixed ones")
        keep = _writes_are_there(trial) if proof.functional else None
        trial.each(static, dtypes=dtypes, wanted=_SMALL, examples=1, most=1, keep=keep)


def _all_differ(case: Case) -> bool:
    """Whether no two dimensions of different names have the same size."""
    bound = bind(case.signature, describe(case.values, case.signature))
    sizes = [*bound.dims.values()]
    for run in bound.variadic.values():
        sizes += run
    return len(set(sizes)) == len(sizes)


def _compare(
    trial: Trial, target: Target, proof: ModelProof, cases: list[Case], *, dynamic: bool
) -> None:
    truths = [trial.truth(case) for case in cases]
    with tempfile.TemporaryDirectory(prefix="opsmith-check-") as folder:
        try:
            model = _export(trial, target, proof, cases[0], Path(folder, "artifact"), dynamic)
        except ExportError as error:
            if not (proof.may_fix if dynamic else proof.may_refuse):
                raise Failure(f"the export {trial.raised(error)}", cases[0]) from error
            first = str(error).splitlines()[0]
            if not dynamic:
                raise Inapplicable(first) from error
            trial.notes.append(f"exported fixed sizes: {first}")
            return _compare(trial, target, proof, cases[:1], dynamic=False)
        try:
            for case, truth in zip(cases, truths, strict=True):
                found = _run(trial, proof, model, case)
                trial.compare(found, truth, f"{proof.what}, run with {shown_shapes(case)}")
        except (OpsmithError, RuntimeError) as error:
            raise Failure(f"{proof.what} {trial.raised(error)}", cases[0]) from error


def _export(
    trial: Trial, target: Target, proof: ModelProof, case: Case, out: Path, dynamic: bool
) -> LoadedModel:
    arguments = case.make(trial.subject.device)
    shapes = tuple(dynamic_shape(trial.signature, *item) for item in arguments.items())
    call = PureCall if proof.functional else OneCall
    export(
        call(trial.operator, list(arguments)).eval(),
        tuple(arguments.values()),
        target=target.name,
        out=out,
        dynamic_shapes=(shapes,) if dynamic else None,
        verify=False,
        say=None,
        **proof.options(trial.operator),
    )
    loaded = load(out)
    assert isinstance(loaded, LoadedModel)
    return loaded


def _run(trial: Trial, proof: ModelProof, model: LoadedModel, case: Case) -> list[Tensor]:
    arguments = case.make(trial.subject.device)
    returned = proof.run(model, list(arguments.values()))
    if proof.functional:
        return [value for value in returned if isinstance(value, torch.Tensor)]
    return flatten(trial.signature, returned, arguments)


def _register(target: Target, proof: Route, order: int) -> None:
    @check(proof.name, proof.summary, order=order, time_limit=5.0, flag=proof.flag)
    def run(trial: Trial) -> None:
        match proof:
            case DirectProof():
                _direct(target, proof, trial)
            case OperatorProof():
                _exported_operator(target, proof, trial)
            case ModelProof():
                _exported(target, proof, trial)


for _order, (_target, _proof) in enumerate(
    ((target, proof) for target in all_targets() for proof in target.proofs()), _FIRST
):
    _register(_target, _proof, _order)
