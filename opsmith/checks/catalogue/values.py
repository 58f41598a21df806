"""Check that the kernel agrees with the reference for all sizes and memory layouts."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace

import torch

from opsmith.checks.cases import cohorts
from opsmith.checks.cases.case import Case
from opsmith.checks.cases.cohorts import Cohort
from opsmith.checks.cases.failure import LIFELESS, Failure
from opsmith.checks.cases.layouts import (
    CHANNELS_LAST,
    EXPANDED,
    LAYOUTS,
    LONE,
    OVERLAPPING,
    PADDED,
    PERMUTED,
    SLICED,
    TRANSPOSED,
)
from opsmith.checks.cases.reruns.registered_cases import laid_out
from opsmith.checks.cases.wanted import SIZES, Wanted
from opsmith.checks.isolation.call_ways import WAYS, described
from opsmith.checks.numerics import loop_sizes
from opsmith.checks.numerics.comparison import compare, same_bits
from opsmith.checks.protocol import PLAIN_CALLS, define_check
from opsmith.checks.trial.size_rules import tell_sizes
from opsmith.checks.trial.trial import Trial
from opsmith.operators.core.arguments import every_tensor_in
from opsmith.signature import NO_DEFAULT, Parameter
from opsmith.signature.dtype_variables import parts
from opsmith.signature.solving.fitting import Fitting

#: Layouts that the author's cases are tried in too.
_COMMON = (TRANSPOSED, SLICED, EXPANDED, PADDED)
#: Number of dimensions that a layout needs, if it needs more than one.
_LEAST_DIMENSIONS = {PADDED: 2, OVERLAPPING: 2, LONE: 2, PERMUTED: 3, CHANNELS_LAST: 3}
#: Number of examples from which on cohorts have all of their cases.
_ENOUGH = 20
#: An empty tensor has no layout.
_FILLED = tuple(size for size in SIZES if size)
#: How calls end that return nothing; of those that hang, no more are made.
_ENDS = ("OPS-CALL-CRASH", "OPS-CALL-EXIT", "OPS-CALL-RAISED")
_MORE_SIZES = (3, 4, 5, 8)
_ODD = (1, 2, 3, 1, 5)


def _agrees(trial: Trial, case: Case, how: str = "") -> None:
    truth = trial.truth(case)
    trial.compare(trial.run(trial.make(case)), truth, how)


def _returns(trial: Trial) -> bool:
    """Return whether the kernel returns from any call, in sizes from 3 on, in each dtype."""
    returned: list[bool] = []

    def tried(case: Case) -> None:
        trial.accept(case)
        returned.append(False)
        with suppress(Exception):
            trial.run(trial.make(case))
            returned[-1] = True

    with suppress(Failure):
        trial.each(tried, wanted=Wanted(sizes=_MORE_SIZES), examples=3)
    return any(returned) or not returned


def _tell_more(trial: Trial, failure: Failure, case: Case) -> None:
    """Say of wrong values that equal calls differ, that one changed later, or wrote nothing."""
    with suppress(Exception):
        arguments = trial.make(case)
        written = [
            (name, tensor.clone())
            for parameter in trial.signature.mutated
            for name, tensor in every_tensor_in({parameter.name: arguments[parameter.name]})
        ]
        trial.kernel.keep, first = 1, trial.run(arguments)
        try:
            for _ in range(2):
                time.sleep(0.1)  # for kernels that go on working after a call has returned
                second = trial.run(trial.make(case))
        except Failure as later:
            if later.code == "OPS-RESULT-REUSED":
                failure.args, failure.code = (f"{failure}\n{later}",), later.code
            return
        finally:
            trial.kernel.keep = 0
        pairs = zip(first, second, strict=True)
        if not all(torch.allclose(a.double(), b.double(), 1e-3, equal_nan=True) for a, b in pairs):
            failure.args = (f"{failure}\nTwo equal calls, one after the other, differ.",)
            failure.code = "OPS-DETERMINISM-REPEAT"
            return
        values = trial.truth(case).values
        for (name, before), after, right in zip(
            *(reversed(one) for one in (written, first, values)), strict=False
        ):
            if same_bits([before], [after]) and not torch.allclose(before.double(), right.double()):
                kept = f"{name!r} is as it was: nothing was written into it, or what it held."
                failure.args = (f"{failure}\n{kept}",)
                failure.code = "OPS-RESULT-UNWRITTEN"


def _tell_unread(trial: Trial, failure: Failure, case: Case) -> None:
    """Say which numbers are not read: with their defaults, the results are equal, and right."""
    own = {p.name: p.default for p in trial.signature.parameters if not p.tensor_type}
    names = [name for name in own if own[name] not in (NO_DEFAULT, case.values[name])]
    with suppress(Exception):
        results = trial.run(trial.make(case))
        for several in [[name] for name in names] + [names] * (len(names) > 1):
            plain = replace(case, values={**case.values, **{name: own[name] for name in several}})
            again = trial.run(trial.make(plain))
            if same_bits(results, again) and not compare(again, trial.truth(plain)).problem:
                given = ", ".join(f"{name}={own[name]!r}" for name in several)
                failure.args = (f"{failure}\nNot read: with {given}, the results are the same.",)
                failure.code = "OPS-ARGUMENT-NUMBER"
                return


@define_check(
    "reference", "the results agree with the reference in double precision", order=10, apart=True
)
def reference(trial: Trial) -> None:
    """Try every dtype with contiguous arguments, then each cohort."""
    try:
        _every_cohort(trial)
    except Failure as failure:
        ends = failure.code in _ENDS and trial.counts.error is None and not failure.final
        if failure.code == "OPS-VALUE-WRONG" and trial.counts.cohort in ("NaN", "infinity"):
            failure.code = "OPS-VALUE-RANGE"
        if failure.code == "OPS-VALUE-WRONG" and failure.case is not None:
            _tell_more(trial, failure, failure.case)
        if trial.replay.alone or trial.settings.given:
            pass
        elif ends and not _returns(trial):
            failure.args = (f"{failure}\n{LIFELESS}",)
        else:
            tell_sizes(trial, failure, lambda case: _agrees(trial, case))
            if failure.code == "OPS-VALUE-WRONG" and failure.case is not None:
                _tell_unread(trial, failure, failure.case)
        raise


def _every_cohort(trial: Trial) -> None:
    trial.each(lambda case: _agrees(trial, case), wanted=Wanted(inexact=True))
    counts = {"normal": trial.counts.ran}
    if not (trial.cases.only_registered or trial.counts.mistaken):
        most = loop_sizes.largest_sizes(trial.operator, trial.subject.favourite)
        for cohort, dtype, examples in _cohorts(trial, most):
            if not examples:
                continue
            before = trial.counts.ran
            trial.attribution.wrong, trial.counts.cohort = cohort.code, cohort.name
            trial.sample(lambda case: _agrees(trial, case), cohort.wanted, examples, dtype)
            counts[cohort.name] = counts.get(cohort.name, 0) + trial.counts.ran - before
        for name in cohorts.OWED:
            if name not in counts:
                allowed = "the declaration's sizes and the kernel's dtypes allow none"
                trial.counts.lacking[name, ""] = allowed
        if most:
            trial.notes.append(f"{loop_sizes.described(most, 'cohorts')} sizes")
    for way in () if trial.settings.given else WAYS:
        before = trial.counts.ran
        trial.attribution.wrong = trial.attribution.raises = "OPS-STATE-MODE"
        trial.kernel.way = trial.counts.cohort = way
        trial.each(
            lambda case, way=way: _agrees(trial, case, described(way)),  # type: ignore[misc]
            dtypes=(trial.subject.favourite,),
            wanted=Wanted(sizes=_FILLED),
            examples=2,
            most=1,
        )
        counts[way] = trial.counts.ran - before
    told = ", ".join(f"{name} {count}" for name, count in counts.items() if count)
    if told:
        trial.notes.append(f"cohorts: {told}")
    unspecified = ", ".join(trial.signature.unspecified())
    if unspecified:
        trial.notes.append(f"unspecified, so never sampled: {unspecified}")


def _cohorts(trial: Trial, most: Mapping[str, int]) -> Iterator[tuple[Cohort, str | None, int]]:
    """Yield every cohort with a dtype to try it in, and the number of examples."""
    signature, favourite = trial.signature, trial.subject.favourite
    others = [dtype for dtype in trial.subject.dtypes if dtype != favourite]
    found = [
        *cohorts.served(trial.operator.sizes),
        *cohorts.values(signature, favourite),
        *cohorts.arguments(signature, trial.settings.seed),
        # An adopted operator is defined elsewhere, so its author does not decide about overlaps.
        *(() if trial.subject.adopted else cohorts.overlaps(signature)),
        *cohorts.sizes(signature, trial.settings.seed, most),
        *cohorts.large(signature, most),
    ]
    for position, cohort in enumerate(found):
        yield cohort, favourite, _share_of(trial, cohort.examples)
        if cohort.other_examples and others:
            one = others[(position + trial.settings.seed) % len(others)]
            for other in others if cohort.every_dtype else (one,):
                yield cohort, other, _share_of(trial, cohort.other_examples)
        for half in cohort.halves:
            own = [dtype for dtype in trial.subject.dtypes if half in parts(dtype)]
            if own or half in cohorts.fixed_dtypes(signature):
                share = _share_of(trial, cohort.half_examples)
                yield cohort, next(iter(own), favourite), share
                break


def _share_of(trial: Trial, examples: int) -> int:
    """Return the number of cases of a cohort: fewer where few cases are asked for, but one."""
    return math.ceil(examples * min(1.0, trial.settings.examples / _ENOUGH))


@define_check(
    "layouts",
    "transposed, sliced, padded, permuted, expanded, overlapping arguments give right results",
    order=20,
    needs=PLAIN_CALLS,
    apart=True,
)
def memory_layouts(trial: Trial) -> None:
    """Try every argument in the same layout, then each argument in its own."""
    trial.attribution.wrong = trial.attribution.raises = "OPS-LAYOUT-STRIDE"
    most = max((_most_dimensions(p) for p in trial.signature.tensors), default=0)
    only = trial.operator.only_registered_cases  # they alone show what samples do elsewhere
    for layout in LAYOUTS[1:]:
        if most < _LEAST_DIMENSIONS.get(layout, 0):
            trial.counts.lacking[layout, ""] = "no argument has so many dimensions"
            continue

        def adapt(case: Case, layout: str = layout) -> Case:
            return laid_out(case, (layout,))

        trial.counts.cohort = layout
        before = trial.counts.ran

        def can_be(case: Case, lay: Callable[[Case], Case] = adapt) -> bool:
            return lay(case).is_strided

        # Only values that nobody writes or compares may repeat, in samples too.
        repeats = layout in (EXPANDED, OVERLAPPING)
        free = any(not (p.mutated or p.constraints) for p in trial.signature.tensors)
        examples = trial.some(8 if layout in _COMMON else 15) if free or not repeats else 0
        alone = _alone(trial) if layout == LONE else ()
        for forced in alone or ({},):
            trial.each(
                lambda case: _agrees(trial, case),
                dtypes=(trial.subject.favourite,),
                wanted=Wanted(
                    layouts=(layout,), sizes=_ODD if layout == LONE else _FILLED, forced=forced
                ),
                examples=trial.some(8) if alone else examples,
                registered_cases=only or layout in _COMMON,
                keep=can_be,
                adapt=adapt,
            )
        if only and trial.counts.ran == before:
            trial.counts.lacking[layout, ""] = "no registered case can be laid out so"
    trial.counts.cohort = "any layout"
    trial.each(
        lambda case: _agrees(trial, case),
        wanted=Wanted(layouts=LAYOUTS),
        examples=trial.some(4),
        registered_cases=only,
        keep=lambda case: not case.origin or laid_out(case, LAYOUTS).is_strided,
        adapt=lambda case: laid_out(case, LAYOUTS),
    )
    trial.need(trial.counts.ran, "no argument can be anything but contiguous")


def _alone(trial: Trial) -> tuple[dict[str, int], ...]:
    """Return a size of 1 for every named dimension that may have one element."""
    fitting = Fitting(trial.signature)
    names = [n for n in trial.signature.dims if n not in trial.signature.variadic_dims]
    return tuple({name: 1} for name in names if fitting.fits(name, 1, {}, {}))


def _most_dimensions(parameter: Parameter) -> float:
    """Return the largest number of dimensions that a tensor may have."""
    shape = parameter.shape
    return math.inf if shape is None or shape.variadic is not None else shape.rank


@define_check(
    "empty-sizes",
    "dimensions of size 0 and 1 give right results",
    order=25,
    apart=True,
    needs=PLAIN_CALLS,
)
def empty_sizes(trial: Trial) -> None:
    """Set each dimension to 0 and to 1 by itself, then all of them."""
    dtypes = (trial.subject.favourite,)
    trial.attribution.wrong = "OPS-SIZE-SMALL"

    def has_small(case: Case) -> bool:
        return any(size < 2 for _, tensor in case.tensors() for size in tensor.shape)

    names = [n for n in trial.signature.dims if n not in trial.signature.variadic_dims]
    trial.each(lambda case: _agrees(trial, case), dtypes=dtypes, examples=0, keep=has_small)
    fitting = Fitting(trial.signature)
    for name in names:
        for size in (0, 1):
            if not fitting.fits(name, size, {}, {}):
                continue
            trial.counts.cohort = f"{name}={size}"
            wanted = Wanted(sizes=(2, 3, 1, 0, 4), forced={name: size})
            trial.sample(lambda case: _agrees(trial, case), wanted, 3)
    trial.counts.cohort = "every size 0 or 1"
    trial.sample(lambda case: _agrees(trial, case), Wanted(sizes=(0, 1)), 8)
    refusal = trial.counts.refusal
    trial.need(
        trial.counts.ran or not refusal, f"the reference refuses every size of 0 and 1: {refusal}"
    )
    trial.need(
        trial.counts.ran,
        "no registered case has a size of 0 or 1, and register_cases(only=True) allows no others"
        if trial.cases.only_registered
        else "no argument has a dimension",
    )
