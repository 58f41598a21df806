"""A call leaves nothing behind, and calls at the same time do not meet."""

from __future__ import annotations

import gc
import sys
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from opsmith.checks.cases.case import Case
from opsmith.checks.cases.failure import Failure
from opsmith.checks.cases.sampling import SIZES, Wanted
from opsmith.checks.catalogue import memory_safety
from opsmith.checks.harness import Phase
from opsmith.checks.isolation.fork_detection import forking_fails
from opsmith.checks.isolation.process_state import Surroundings
from opsmith.checks.numerics.comparison import compare
from opsmith.checks.numerics.oracle import Expected
from opsmith.checks.protocol import check
from opsmith.checks.trial import Trial
from opsmith.operators.core.arguments import every_tensor_in

#: How often two threads call at once.
_ROUNDS = 8
#: How many results are looked at again after later calls.
_KEPT = 20
#: No pair has a size of 0 or 1: drawn with the others, most pairs of many dimensions are refused.
_PAIRS = Wanted(sizes=tuple(size for size in SIZES if size > 1))


@check(
    "side-effects",
    "a call leaves nothing behind, and calls at the same time do not meet",
    order=70,
    time_limit=2.0,
)
def side_effects(trial: Trial) -> None:
    """Settings, random numbers, references; two threads at once; compiled kernels without Python.

    A compiled kernel is called by the harness too, which sees what it allocates and does not free,
    and what it changes of the floating-point environment, threads and files.
    """
    dtypes = (trial.subject.favourite,)
    build = (
        memory_safety.build_for(trial)
        if trial.subject in memory_safety.compiled(trial.operator)
        else None
    )

    def alone(case: Case) -> None:
        trial.accept(case)
        _leaves_settings(trial, case)
        _keeps_no_argument(trial, case)
        if build is not None:
            memory_safety.call(trial, build, [case], [Phase(calls=12)])

    def both(first: Case, second: Case) -> None:
        truths = [trial.truth(first), trial.truth(second)]
        # A kernel that is wrong for a single call is not wrong because of the other one.
        for case, truth in zip((first, second), truths, strict=True):
            trial.compare(trial.run(case.make(trial.subject.device)), truth, "called alone")
        _do_not_meet(trial, [first, second], truths)
        if build is None:
            return
        memory = len(list(first.tensors())) + len(trial.signature.results)
        pauses = [Phase(together=True, pause=place) for place in range(memory)]
        phases = [Phase(), *[Phase(together=True)] * 2, *pauses]
        called = memory_safety.call(trial, build, [first, second], phases)
        for phase, calls in zip(phases, called, strict=True):
            for call, expected in zip(calls, truths, strict=True):
                if compare(call.tensors(), expected).problem is not None:
                    code = "OPS-STATE-THREADS" if phase.together else ""
                    trial.compare(call.tensors(), expected, phase.describe(), code=code)

    trial.each(alone, dtypes=dtypes, examples=trial.some(12), most=2)
    trial.each_pair(both, dtypes=dtypes, wanted=_PAIRS, examples=trial.some(12))


def _leaves_settings(trial: Trial, case: Case) -> None:
    positional, keywords = trial.operator.split(case.make(trial.subject.device))
    with Surroundings() as before:
        # Not `trial.call`, which puts the number of threads back.
        with forking_fails():
            trial.operator(*positional, **keywords)
        changes = before.changes()
    if changes:
        raise Failure(f"a call changed {changes[0]}, and left it so", code="OPS-AFTER-SETTING")
    seeded = torch.Tag.nondeterministic_seeded in trial.operator.overload.tags
    if before.drew_random_numbers and not seeded:
        raise Failure(
            "a call drew from PyTorch's global random numbers, so it changes what comes after. If "
            "that is meant, tag the operator torch.Tag.nondeterministic_seeded.",
            code="OPS-AFTER-RANDOM",
        )


def _keeps_no_argument(trial: Trial, case: Case) -> None:
    arguments = case.make(trial.subject.device)
    kept = {name: weakref.ref(tensor) for name, tensor in every_tensor_in(arguments)}
    results = trial.run(arguments)
    # A mutated argument is among what a run gives.
    del results, arguments
    if any(reference() is not None for reference in kept.values()):
        # Part of a cycle, perhaps: which takes longer to find out than the call.
        gc.collect()
    for name, reference in kept.items():
        if reference() is not None:
            raise Failure(
                f"argument {name!r} is still referenced after the call, so its memory is never "
                "given back",
                code="OPS-AFTER-REFERENCE",
            )


def _do_not_meet(trial: Trial, cases: Sequence[Case], truths: Sequence[Expected]) -> None:
    """Call from two threads at once, again and again."""
    gave: list[list[Any]] = [[] for _ in cases]
    ready = threading.Barrier(len(cases))
    rounds = [[case.make(trial.subject.device) for _ in range(_ROUNDS)] for case in cases]

    def work(position: int) -> None:
        ready.wait()
        for arguments in rounds[position]:
            try:
                gave[position].append(trial.run(arguments))
            except Exception as error:
                gave[position].append(error)

    with _switching_often():
        workers = [threading.Thread(target=work, args=(i,)) for i in range(len(cases))]
        for worker in workers:
            worker.start()
        for worker in workers:
            worker.join()
    for results, truth in zip(gave, truths, strict=True):
        for result in results:
            if isinstance(result, Exception):
                raise Failure(
                    f"called by two threads at once: {trial.raised(result)}",
                    code="OPS-STATE-THREADS",
                )
            trial.compare(result, truth, "called by two threads at once", code="OPS-STATE-THREADS")


@contextmanager
def _switching_often() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-5)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


@check(
    "statefulness",
    "a result depends on the arguments alone: not on earlier calls, nor on later ones",
    order=72,
    time_limit=2.0,
    apart=True,
)
def statefulness(trial: Trial) -> None:
    """The same tensors with other values in them, results looked at again, many calls in a row."""
    dtypes = (trial.subject.favourite,)
    trial.keep = _KEPT

    def one(case: Case) -> None:
        truth = trial.truth(case)
        arguments = trial.make(case)
        trial.compare(trial.run(arguments), truth)
        other = _rewritten(case)
        if other is None or trial.signature.mutated:
            return
        truth = trial.truth(other)
        for name, tensor in every_tensor_in(arguments):
            tensor.copy_(dict(every_tensor_in(dict(other.values)))[name])
        again = trial.run(arguments)
        what = "called again with the same tensors, other values in them"
        trial.compare(again, truth, what, code="OPS-STATE-EARLIER")

    trial.each(one, dtypes=dtypes, examples=trial.some(6), most=3)
    time.sleep(0.02)  # for what works on after a call returned
    _many(trial, dtypes)


def _rewritten(case: Case) -> Case | None:
    """The case with other values in floating tensors, but for their first elements.

    `None` where there is no tensor whose values are free.
    """
    values = dict(case.values)
    changed = False
    for parameter in case.signature.parameters:
        value = values[parameter.name]
        free = isinstance(value, Tensor) and value.is_floating_point() and value.numel() > 1
        if not free or parameter.constraints:
            continue
        flat = value.flatten()
        values[parameter.name] = torch.cat([flat[:1], flat[1:].flip(0) * -0.5]).view(value.shape)
        changed = True
    return Case(case.signature, values, {}, case.origin) if changed else None


def _many(trial: Trial, dtypes: tuple[str | None, ...]) -> None:
    """Hundreds of calls, the last of which has to be right as well."""
    seconds = min(2.0, trial.settings.seconds / 4)

    def many(case: Case) -> None:
        truth = trial.truth(case)
        started = time.monotonic()
        for number in range(1, 601):
            results = trial.run(trial.make(case))
            late = time.monotonic() - started > seconds
            if number % 150 == 0 or late:
                trial.compare(results, truth, f"after {number} calls", code="OPS-STATE-EARLIER")
            if late:
                break

    trial.each(many, dtypes=dtypes, examples=1, most=1, registered_cases=True)
