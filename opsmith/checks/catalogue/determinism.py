"""Check that equal calls give the same bits."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from opsmith.checks.cases.case import Case
from opsmith.checks.cases.failure import Failure
from opsmith.checks.cases.reruns.registered_cases import shown_shapes
from opsmith.checks.cases.sampling import SIZES, Wanted
from opsmith.checks.cases.subject import REFERENCE
from opsmith.checks.numerics.comparison import compare, difference
from opsmith.checks.numerics.gradients import has_gradient
from opsmith.checks.numerics.oracle import Expected
from opsmith.checks.protocol import define_check
from opsmith.checks.trial import Trial
from opsmith.checks.trial_gradients import random_cotangents, run_backward, true_gradients
from opsmith.kernels import HOST

_RUNS = 3
_TAGS = (torch.Tag.nondeterministic_seeded, torch.Tag.nondeterministic_bitwise)
_EQUAL = "two equal calls"
_MEANT = "If that is meant, tag the operator torch.Tag.nondeterministic_bitwise."


@define_check(
    "determinism",
    "a call repeated, or with more threads, gives the same bits",
    order=60,
    apart=True,
)
def determinism(trial: Trial) -> None:
    """Compare repeated runs, and runs with one thread and several; gradients too, if any.

    A compiled kernel must give the same bits each time. Code in PyTorch is only as reproducible as
    PyTorch's operators, whose bits may depend on the number of threads (``x @ w.T``): it must stay
    within the tolerance, and the row reports differences.
    """
    operator, rule = trial.operator, trial.operator.rule
    tags = [tag.name for tag in operator.overload.tags if tag in _TAGS]
    trial.need(not tags, f"tagged {', '.join(tags)}")
    trial.kernel.threads = max(2, trial.kernel.threads)
    kernel = _Claims(
        repeats=trial.subject.kernel != REFERENCE,
        any_threads=trial.subject.implementation.source is not None,
    )
    backward = _Claims(repeats=rule.backward is not None, any_threads=False)

    def one(case: Case) -> None:
        truth = trial.truth(case)
        _repeat(trial, case, lambda: trial.run(trial.make(case)), truth, kernel)
        if has_gradient(operator) and case.dtype in trial.subject.floats:
            cotangents = random_cotangents(trial, case)

            def gradients() -> list[Tensor]:
                return run_backward(trial, case, cotangents).gradients()

            right = true_gradients(trial, case, cotangents)
            with trial.blaming("backward", rule.backward):
                _repeat(trial, case, gradients, right, backward, "gradients: ")

    # Use sizes from which on kernels split work among threads.
    wanted = Wanted(sizes=(*SIZES, 257, 1000), max_elements=1 << 15)
    trial.each(one, wanted=wanted, examples=trial.some(3), most=8)


@dataclass(frozen=True)
class _Claims:
    """The calls whose results must be equal in every bit, instead of within the tolerance.

    Attributes:
        repeats: equal calls.
        any_threads: calls with different numbers of threads.
    """

    repeats: bool
    any_threads: bool


def _repeat(
    trial: Trial,
    case: Case,
    run: Callable[[], list[Tensor]],
    truth: Expected | None,
    claims: _Claims,
    what: str = "",
) -> None:
    first = run()
    if truth is not None:
        code = "OPS-GRADIENT-WRONG" if what else ""
        trial.compare(first, truth, what.removesuffix(": "), code=code)
    for _ in range(_RUNS - 1):
        _require_same(trial, case, (first, run()), truth, f"{what}{_EQUAL}", claims.repeats)
    if trial.subject.device != HOST:
        return
    trial.kernel.threads, many = 1, trial.kernel.threads
    try:
        alone = run()
    finally:
        trial.kernel.threads = many
    calls = f"{what}1 thread and {many} threads"
    _require_same(trial, case, (alone, first), truth, calls, claims.any_threads)


def _require_same(
    trial: Trial,
    case: Case,
    pair: tuple[list[Tensor], list[Tensor]],
    truth: Expected | None,
    calls: str,
    strict: bool,
) -> None:
    names = truth.names if truth is not None else [f"result {n}" for n in range(len(pair[0]))]
    found = difference(*pair, names)
    if not found:
        return
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
