"""The same call gives the same bits."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from opsmith.checks.case import Case
from opsmith.checks.comparison import same_bits
from opsmith.checks.gradients import has_gradient, random_cotangents, run_backward
from opsmith.checks.protocol import Failure, check
from opsmith.checks.sampling import SIZES, Wanted
from opsmith.checks.trial import Trial

_RUNS = 3
_TAGS = (torch.Tag.nondeterministic_seeded, torch.Tag.nondeterministic_bitwise)


@check("determinism", "a call repeated, or with more threads, gives the same bits", order=60)
def determinism(trial: Trial) -> None:
    """Three runs, and runs with one thread and with two; gradients too where there are."""
    tags = [tag.name for tag in trial.operator._opoverload.tags if tag in _TAGS]
    trial.need(not tags, f"tagged {', '.join(tags)}")
    device = trial.subject.device
    trial.threads = max(2, trial.threads)

    def one(case: Case) -> None:
        trial.accept(case)
        _repeat(trial, lambda: trial.run(case.make(device)), "")
        if has_gradient(trial.operator) and case.dtype in trial.subject.floats:

            def backward() -> list[Tensor]:
                cotangents = random_cotangents(trial, case)
                return run_backward(trial, case, cotangents).gradients()

            _repeat(trial, backward, "gradients: ")

    # Work is split among threads from some size on.
    wanted = Wanted(sizes=(*SIZES, 257, 1000), max_elements=1 << 15)
    trial.each(one, wanted=wanted, examples=trial.some(3), most=8)


def _repeat(trial: Trial, run: Callable[[], list[Tensor]], what: str) -> None:
    first = run()
    for _ in range(_RUNS - 1):
        if not same_bits(first, run()):
            raise Failure(f"{what}two equal calls gave different bits")
    if trial.subject.device != "cpu":
        return
    trial.threads, many = 1, trial.threads
    try:
        alone = run()
    finally:
        trial.threads = many
    if not same_bits(alone, first):
        raise Failure(f"{what}1 thread and {many} threads gave different bits")
