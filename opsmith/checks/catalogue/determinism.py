"""Check that equal calls give the same bits."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from opsmith.checks.cases import cohorts
from opsmith.checks.cases.case import Case
from opsmith.checks.cases.failure import Failure
from opsmith.checks.cases.reruns.registered_cases import shown_shapes
from opsmith.checks.cases.subject import REFERENCE
from opsmith.checks.cases.wanted import SIZES, Wanted
from opsmith.checks.numerics import loop_sizes
from opsmith.checks.numerics.comparison import compare, difference, same_bits
from opsmith.checks.numerics.gradients import has_gradient
from opsmith.checks.numerics.oracle import Expected
from opsmith.checks.protocol import PLAIN_CALLS, define_check
from opsmith.checks.trial.trial import Trial
from opsmith.checks.trial.trial_gradients import random_cotangents, run_backward, true_gradients
from opsmith.kernels import HOST

_RUNS = 3
_TAGS = (torch.Tag.nondeterministic_seeded, torch.Tag.nondeterministic_bitwise)
_EQUAL = "two equal calls"
_MEANT = "If that is meant, tag the operator torch.Tag.nondeterministic_bitwise."


@define_check(
    "determinism",
    "a call repeated, or with more threads, gives the same bits",
    order=60,
    needs=PLAIN_CALLS,
    apart=True,
)
def determinism(trial: Trial) -> None:
    """Compare repeated runs, and runs with one thread and several; gradients too, if any.

    A compiled kernel must give the same bits each time. Code in PyTorch is only as reproducible as
    PyTorch's operators, whose bits may depend on the number of threads (``x @ w.T``): it must stay
    within the tolerance, and the row reports differences.

    For a reference that loops in Python, right results and their tolerances take minutes in large
    cases. They are then computed only where bits differ: equal bits are found without them.
    """
    operator, rule = trial.operator, trial.operator.rule
    tags = [tag.name for tag in operator.overload.tags if tag in _TAGS]
    trial.need(not tags, f"tagged {', '.join(tags)}")
    trial.kernel.threads = trial.settings.threads or max(2, trial.kernel.threads)
    kernel = _Claims(
        repeats=trial.subject.kernel != REFERENCE,
        any_threads=trial.subject.implementation.source is not None,
    )
    backward = _Claims(repeats=rule.backward is not None, any_threads=False)

    most, most_backward = _sizes_with_time(trial)
    beyond: dict[str, str] = {}

    def one(case: Case) -> None:
        truth = functools.cache(lambda: trial.truth(case))
        if _is_compared(case, most):
            truth()
        else:
            beyond["results"] = loop_sizes.limits(most)
            trial.accept(case)
        _repeat(
            trial,
            case,
            lambda: trial.run(trial.make(case)),
            _Right(truth, _is_compared(case, most)),
            kernel,
        )
        if has_gradient(operator) and case.dtype in trial.subject.floats:
            cotangents = random_cotangents(trial, case)

            def gradients() -> list[Tensor]:
                return run_backward(trial, case, cotangents).gradients()

            right = functools.cache(lambda: true_gradients(trial, case, cotangents))
            if not _is_compared(case, most_backward):
                beyond["gradients"] = loop_sizes.limits(most_backward)
            with trial.attribution.blaming("backward", rule.backward):
                _repeat(
                    trial,
                    case,
                    gradients,
                    _Right(right, _is_compared(case, most_backward)),
                    backward,
                    "gradients: ",
                )

    # Use sizes from which on kernels split work among threads. PyTorch's own operators may then
    # give other bits, so a reference that runs by itself needs right results in every case.
    limits = most if not kernel.any_threads else {}
    if has_gradient(operator) and rule.backward is None:
        limits = most_backward
    wanted = Wanted(sizes=(*SIZES, 257, 1000), max_elements=1 << 15, most=limits)
    trial.each(one, wanted=wanted, examples=trial.some(3), most=8)
    # Repeat long rows too: beside many dimensions, the samples above have small sizes alone.
    longest = dict.fromkeys(trial.signature.dims, max(wanted.sizes)) | limits
    for cohort in cohorts.sizes(trial.signature, trial.settings.seed, longest):
        if cohort.name == "long rows":
            trial.sample(one, cohort.wanted, 1)
    if limits:
        trial.notes.append(f"{loop_sizes.described(limits, 'samples')} cases")
    elif beyond:
        larger = " and ".join(f"{what} beyond {sizes}" for what, sizes in beyond.items())
        trial.notes.append(f"{loop_sizes.REASON}, so {larger} were compared with each other alone")


def _sizes_with_time(trial: Trial) -> tuple[dict[str, int], dict[str, int]]:
    """Return the largest sizes for which there is time for right results, and for gradients."""
    if trial.cases.only_registered:
        return {}, {}
    operator, dtype = trial.operator, trial.subject.favourite
    most = loop_sizes.largest_sizes(operator, dtype)
    if not most or not has_gradient(operator):
        return most, most
    return most, loop_sizes.largest_sizes(operator, dtype, by_steps=True)


def _is_compared(case: Case, most: Mapping[str, int]) -> bool:
    """Return whether a case is compared with right results, even if all bits are equal."""
    return bool(case.origin) or loop_sizes.is_within(case, most)


@dataclass(frozen=True)
class _Claims:
    """The calls whose results must be equal in every bit, instead of within the tolerance.

    Attributes:
        repeats: equal calls.
        any_threads: calls with different numbers of threads.
    """

    repeats: bool
    any_threads: bool


@dataclass(frozen=True)
class _Right:
    """The right results of a case.

    Attributes:
        find: computes the right results, or returns those that it computed before; `None` if
            nothing is known to be right.
        compared: whether results are compared with them even if all bits are equal.
    """

    find: Callable[[], Expected | None]
    compared: bool


def _repeat(
    trial: Trial,
    case: Case,
    run: Callable[[], list[Tensor]],
    right: _Right,
    claims: _Claims,
    what: str = "",
) -> None:
    first = run()
    truth = right.find() if right.compared else None
    if truth is not None:
        code = "OPS-GRADIENT-WRONG" if what else ""
        trial.compare(first, truth, what.removesuffix(": "), code=code)
    for _ in range(_RUNS - 1):
        _require_same(trial, case, (first, run()), right, f"{what}{_EQUAL}", claims.repeats)
    if trial.subject.device != HOST:
        return
    trial.kernel.threads, many = 1, trial.kernel.threads
    try:
        alone = run()
    finally:
        trial.kernel.threads = many
    calls = f"{what}1 thread and {many} threads"
    _require_same(trial, case, (alone, first), right, calls, claims.any_threads)


def _require_same(
    trial: Trial,
    case: Case,
    pair: tuple[list[Tensor], list[Tensor]],
    right: _Right,
    calls: str,
    strict: bool,
) -> None:
    if same_bits(*pair):
        return
    truth = right.find()
    names = truth.names if truth is not None else [f"result {n}" for n in range(len(pair[0]))]
    found = difference(*pair, names)
    repeated = calls.endswith(_EQUAL)
    code = "OPS-DETERMINISM-REPEAT" if repeated else "OPS-DETERMINISM-THREADS"
    text = f"{calls} gave different bits: {found}; with {shown_shapes(case)}"
    problems = [compare(results, truth).problem for results in pair] if truth is not None else []
    wrong = [
        f"{which} is wrong: {problem}"
        for which, problem in zip(("the first", "the second"), problems, strict=False)
        if problem
    ]
    if wrong:
        raise Failure("\n".join([text, *wrong]), code=code)
    if truth is not None:
        text += "; both are within the tolerance"
    if strict:
        raise Failure(f"{text}. {_MEANT}", code=code)
    if not any(note.startswith(calls) for note in trial.notes):
        trial.notes.append(f"{text}, as PyTorch's own operators do")
