"""Check that every runtime computes the same: one check for each proof that a target offers."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from torch import Tensor

from opsmith.checks.cases.broken_conditions import Broken, broken_conditions
from opsmith.checks.cases.case import Case
from opsmith.checks.cases.failure import Failure
from opsmith.checks.cases.subject import is_float
from opsmith.checks.cases.wanted import DYNAMIC_SIZES, Wanted
from opsmith.checks.exports.constant_coverage import telling_cases
from opsmith.checks.exports.export_comparison import ModelExports
from opsmith.checks.isolation.import_location import module_of
from opsmith.checks.numerics.gradients import has_leaves, leaves_of
from opsmith.checks.numerics.oracle import RefusedError
from opsmith.checks.protocol import PLAIN_CALLS, define_check
from opsmith.checks.trial.trial import Trial
from opsmith.checks.trial.trial_gradients import (
    random_cotangents,
    samples_for_gradients,
    true_gradients,
)
from opsmith.errors import OpsmithError
from opsmith.operators.core.arguments import describe
from opsmith.signature.binding import bind
from opsmith.system.files import key_of, once
from opsmith.system.scratch import scratch_folder
from opsmith.targets import (
    DirectProof,
    GradientProof,
    LoadedOperators,
    ModelProof,
    OperatorProof,
    Route,
    Target,
    all_targets,
    export,
    load,
)
from opsmith.targets.exporting.artifact import MANIFEST
from opsmith.targets.exporting.protocol import TRACING

#: The checks of targets come last, grouped by target.
_FIRST = 200
_SMALL = Wanted(sizes=(2, 3, 4, 5), max_elements=512)
_DYNAMIC = Wanted(sizes=DYNAMIC_SIZES, distinct=True, max_elements=4096)
#: Number of the author's cases to run for a proof that covers every dtype.
_MOST = 8


def _require(trial: Trial, target: Target, proof: Route) -> tuple[str | None, ...]:
    """Return the dtypes that `proof` supports for the operator, the default dtype first.

    From then on, failures are attributed to the function that the route names.
    """
    obstacle = proof.obstacle(trial.operator, trial.subject.implementation)
    trial.need(obstacle is None, str(obstacle))
    missing = target.available()
    trial.need(missing is None, str(missing))
    types = [parameter.tensor_type for parameter in trial.signature.tensors]
    types += [result.tensor_type for result in trial.signature.results]
    fixed = {type_.dtypes.names[0] for type_ in types if type_ and not type_.dtypes.generic}
    lacking = sorted(fixed & proof.lacks)
    trial.need(not lacking, f"{target.title} has no {', '.join(lacking)}")
    dtypes = (trial.subject.favourite, *trial.subject.dtypes)
    found = tuple(
        dict.fromkeys(name for name in dtypes if not trial.signature.dtypes_in(name) & proof.lacks)
    )
    needed = frozenset[str]().union(*map(trial.signature.dtypes_in, dtypes))
    trial.need(found, f"{target.title} has no {', '.join(sorted(needed & proof.lacks))}")
    trial.attribution.blame = proof.about(trial.operator)
    remark = proof.remark(trial.operator, trial.subject.implementation)
    if remark:
        trial.notes.append(remark)
    return found


# --- in every dtype ------------------------------------------------------------------------------


def _direct(target: Target, proof: DirectProof, trial: Trial) -> None:
    dtypes = _require(trial, target, proof)
    _each(trial, proof, proof.opened(trial.operator), dtypes)


def _exported_operator(target: Target, proof: OperatorProof, trial: Trial) -> None:
    dtypes = _require(trial, target, proof)
    with _loaded(target, proof, trial) as loaded:
        _each(trial, proof, functools.partial(proof.run, loaded, trial.operator), dtypes)


def _exported_gradient(target: Target, proof: GradientProof, trial: Trial) -> None:
    """Compare gradients with the reference's gradients in double precision."""
    dtypes = _require(trial, target, proof)
    # An argument of a fixed dtype (Float32) is not among the generic dtypes, and may have a
    # gradient.
    floats = tuple(name for name in dtypes if name is not None and is_float(name)) or (None,)
    with _loaded(target, proof, trial) as loaded:
        compared = 0

        def one(case: Case) -> None:
            nonlocal compared
            trial.accept(case)
            cotangents = random_cotangents(trial, case)
            truth = true_gradients(trial, case, cotangents)
            if truth is None:
                # If the reference is not differentiable PyTorch, compare with the declared
                # backward.
                truth = true_gradients(trial, case, cotangents, trial.operator)
            if truth is None:
                return
            arguments, _ = leaves_of(case.make(), case.signature)
            try:
                found = proof.differentiate(loaded, trial.operator, arguments, cotangents)
            except (OpsmithError, RuntimeError) as error:
                text = f"{proof.what} {trial.raised(error)}"
                raise Failure(text, code="OPS-TARGET-RAISED") from error
            trial.compare(found, truth, f"in {proof.what}")
            compared += 1

        trial.each(
            one,
            dtypes=floats,
            wanted=samples_for_gradients(trial),
            examples=trial.some(3),
            most=_MOST,
            keep=has_leaves,
        )
        trial.need(compared, "neither gradient is differentiable PyTorch")


@contextmanager
def _loaded(
    target: Target, proof: OperatorProof | GradientProof, trial: Trial
) -> Iterator[LoadedOperators]:
    """Return the operator, exported and loaded again.

    The rows of a run share one export. An export may include other operators of the module, such as
    those that a derivative calls; these operators share it too.
    """
    operator, settings = trial.operator, proof.options(trial.operator)

    def shared() -> LoadedOperators | None:
        for manifest in sorted(place.glob(f"*/{MANIFEST}")):
            loaded = load(manifest.parent)
            assert isinstance(loaded, LoadedOperators)
            if operator.name in loaded:
                return loaded
        return None

    def exported() -> LoadedOperators:
        out = place / key_of([operator.name])
        export(operator, target=target.name, out=out, verify=False, say=None, **settings)
        loaded = load(out)
        assert isinstance(loaded, LoadedOperators)
        return loaded

    with scratch_folder("check") as own:
        of_run = trial.settings.shared
        name = key_of([module_of(operator), target.name, repr(settings)])
        place = Path(of_run, name) if of_run else own
        try:
            loaded = once(place, shared, exported)
        except OpsmithError as error:
            raise Failure(f"the export {trial.raised(error)}", code="OPS-TARGET-EXPORT") from error
        yield loaded


def _each(
    trial: Trial,
    proof: Route,
    run: Callable[[Mapping[str, Any]], Sequence[Tensor]],
    dtypes: Sequence[str | None],
) -> None:
    """Compare the results of `run` with the right ones, in every dtype."""

    def one(case: Case) -> None:
        truth = trial.truth(case)
        try:
            found = run(case.make())
        except (OpsmithError, RuntimeError) as error:
            raise Failure(
                f"{proof.what} {trial.raised(error)}", code="OPS-TARGET-RAISED"
            ) from error
        trial.compare(found, truth, f"in {proof.what}")
        for broken in broken_conditions(trial.signature, case.make()):
            if broken.condition not in refused:
                refused.add(broken.condition)
                _must_refuse(proof, run, broken)

    refused: set[str] = set()
    part, most = (6, _MOST // 2) if proof.compiles else (3, _MOST)
    trial.each(one, dtypes=dtypes, examples=trial.some(part), most=most)


def _must_refuse(
    proof: Route, run: Callable[[Mapping[str, Any]], Sequence[Tensor]], broken: Broken
) -> None:
    """Make a call that breaks a condition on sizes, which the runtime must refuse by that name."""
    try:
        run(broken.arguments)
    except (OpsmithError, RuntimeError, ValueError) as error:
        if broken.condition in str(error):
            return
        raise Failure(
            f"{broken.what}: the message in {proof.what} does not say "
            f"{broken.condition!r}: {error}",
            code="OPS-VALIDATION-MESSAGE",
        ) from error
    raise Failure(
        f"{broken.what}: accepted in {proof.what}, expected an error",
        code="OPS-VALIDATION-ACCEPTED",
    )


# --- by an exported model ------------------------------------------------------------------------


def _exported(target: Target, proof: ModelProof, trial: Trial) -> None:
    dtypes = _require(trial, target, proof)[:1]
    # The rows of one target use the same samples, so that they share what was compiled for them.
    trial.cases.sampler.name = target.name
    keep = _kept(proof)
    telling = telling_cases(trial, dtypes[0], _SMALL, keep)
    exports = ModelExports(trial, target, proof, telling)

    def dynamic(first: Case, second: Case) -> None:
        if proof.may_fix and not first.origin and not _all_differ(first):
            # A reference that branches on the equality of two sizes would be exported with one
            # branch.
            raise RefusedError("two sizes are equal")
        exports.compare([first, second])

    # Since each export takes a while, one is enough: of the author's cases if two of them differ
    # only in sizes, otherwise of samples.
    if not any(
        trial.cases.each_pair(dynamic, dtypes=dtypes, wanted=_DYNAMIC, examples=examples)
        for examples in (0, 1)
    ):
        trial.notes.append("no two registered cases differ in sizes alone: exported fixed ones")
        trial.each(
            lambda case: exports.compare([case]),
            dtypes=dtypes,
            wanted=_SMALL,
            examples=1,
            most=1,
            keep=keep,
        )
    exports.finish()


def _kept(proof: ModelProof) -> Callable[[Case], bool]:
    """Return a filter that drops cases which may fail in a model without the operator's fault."""
    # A runtime's own operators may reject a size of 0, or divide by it.
    return lambda case: not proof.may_refuse or all(tensor.numel() for _, tensor in case.tensors())


def _all_differ(case: Case) -> bool:
    """Return whether dimensions of different names all have different sizes."""
    bound = bind(case.signature, describe(case.values, case.signature))
    sizes = [*bound.dims.values()]
    for run in bound.variadic.values():
        sizes += run
    return len(set(sizes)) == len(sizes)


def _needed(proof: Route) -> tuple[str, ...]:
    """Return the checks without which a route's check has nothing to add."""
    if isinstance(proof, GradientProof):
        return ("gradient",)
    if proof.about is not Route.about:  # another part of the author's code than the kernel runs
        return ()
    return (*PLAIN_CALLS, *("fake",) * isinstance(proof, ModelProof), *proof.needs)


def _register(target: Target, proof: Route, order: int) -> None:
    @define_check(
        proof.name,
        proof.summary,
        order=order,
        time_limit=5.0,
        flag=proof.flag,
        runtime=target.title,
        prepares=(*(TRACING if isinstance(proof, ModelProof) else ()), *target.prepares),
        needs=_needed(proof),
    )
    def run(trial: Trial) -> None:
        trial.attribution.wrong, trial.route = "OPS-TARGET-WRONG", (target, proof)
        match proof:
            case DirectProof():
                _direct(target, proof, trial)
            case OperatorProof():
                _exported_operator(target, proof, trial)
            case GradientProof():
                _exported_gradient(target, proof, trial)
            case ModelProof():
                _exported(target, proof, trial)


for _order, (_target, _proof) in enumerate(
    ((target, proof) for target in all_targets() for proof in target.proofs()), _FIRST
):
    _register(_target, _proof, _order)
