"""Check that a call has no lasting side effects, and that concurrent calls do not interfere."""

from __future__ import annotations

import gc
import sys
import threading
import time
import weakref
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from typing import Any

import torch
from torch import Tensor

from opsmith.checks.cases.case import Case
from opsmith.checks.cases.failure import Failure
from opsmith.checks.cases.reruns.registered_cases import alike
from opsmith.checks.cases.wanted import SIZES, Wanted
from opsmith.checks.catalogue import memory_safety
from opsmith.checks.harness import Phase
from opsmith.checks.isolation.fork_detection import forking_fails
from opsmith.checks.isolation.process_state import Surroundings
from opsmith.checks.numerics.comparison import compare
from opsmith.checks.numerics.oracle import Expected, RefusedError
from opsmith.checks.numerics.perturbation import keep_indices
from opsmith.checks.protocol import PLAIN_CALLS, define_check
from opsmith.checks.trial.trial import Trial
from opsmith.operators.core.arguments import every_tensor_in, is_float8

#: Number of calls that each of two threads makes.
_ROUNDS = 8
#: Number of calls with equal arguments; of these, the first ones are made one by one, and the
#: others in groups.
_CALLS, _SINGLE, _GROUP = 6_000, 100, 590
#: Number of these calls that are made however long they take, and the seconds after which the
#: further ones are left out.
_LEAST, _ENOUGH_SECONDS = 3_000, 4.0
#: Seconds that a group of calls may take, since it is as long as a call to the time limit.
_GROUP_SECONDS = 2.0
#: Number of results that are compared again after later calls.
_KEPT = 20
#: Pairs have no size of 0 or 1. If these sizes were drawn too, most pairs of many dimensions would
#: be refused.
_PAIRS = Wanted(sizes=tuple(size for size in SIZES if size > 1))
#: Calls with small tensors are quick, and those without elements tell nothing.
_SMALL = Wanted(sizes=tuple(size for size in SIZES if 1 < size < 10))


@define_check(
    "side-effects",
    "a call leaves nothing behind, and simultaneous calls do not disturb each other",
    order=70,
    time_limit=2.0,
)
def side_effects(trial: Trial) -> None:
    """Look for changed settings, random numbers and references; call from two threads at once.

    The harness calls a compiled kernel too. It sees memory that is allocated and not freed, and
    changes of the floating-point environment, threads and files.
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
        # If a kernel is already wrong in a single call, concurrency is not the cause.
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
    trial.cases.each_pair(both, dtypes=dtypes, wanted=_PAIRS, examples=trial.some(12))


def _leaves_settings(trial: Trial, case: Case) -> None:
    positional, keywords = trial.operator.split(case.make(trial.subject.device))
    with Surroundings() as before:
        # Do not use `trial.call`, which resets the number of threads.
        with forking_fails():
            trial.operator(*positional, **keywords)
        changes = before.changes()
    if changes:
        raise Failure(
            f"a call changed {changes[0]}, and did not restore it", code="OPS-SIDE-EFFECTS-SETTING"
        )
    seeded = torch.Tag.nondeterministic_seeded in trial.operator.overload.tags
    if before.drew_random_numbers and not seeded:
        raise Failure(
            "a call drew from PyTorch's global random numbers, so it changes those of later calls. "
            "If that is intended, tag the operator torch.Tag.nondeterministic_seeded.",
            code="OPS-SIDE-EFFECTS-RANDOM",
        )


def _keeps_no_argument(trial: Trial, case: Case) -> None:
    arguments = case.make(trial.subject.device)
    kept = {name: weakref.ref(tensor) for name, tensor in every_tensor_in(arguments)}
    results = trial.run(arguments)
    # The results of `trial.run` include mutated arguments.
    del results, arguments
    if any(reference() is not None for reference in kept.values()):
        # The tensor may be part of a reference cycle. Collect only if it is still alive, since a
        # collection takes longer than the call.
        gc.collect()
    for name, reference in kept.items():
        if reference() is not None:
            raise Failure(
                f"argument {name!r} is still referenced after the call, so its memory is never "
                "given back",
                code="OPS-SIDE-EFFECTS-REFERENCE",
            )


def _do_not_meet(trial: Trial, cases: Sequence[Case], truths: Sequence[Expected]) -> None:
    """Call from two threads at once, several times."""
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

    with _switching_often(), ThreadPoolExecutor(len(cases)) as pool:
        list(pool.map(work, range(len(cases))))
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


@define_check(
    "statefulness",
    "a result depends on the arguments alone: not on earlier calls, nor on later ones",
    order=72,
    needs=PLAIN_CALLS,
    time_limit=2.0,
    apart=True,
)
def statefulness(trial: Trial) -> None:
    """Call with the same tensors and new values, compare results after later calls, call often."""
    dtypes = (trial.subject.favourite,)
    trial.kernel.keep = _KEPT

    def one(case: Case) -> None:
        truth = trial.truth(case)
        arguments = trial.make(case)
        trial.compare(trial.run(arguments), truth)
        for other in () if trial.signature.mutated else _other_values(trial, case):
            with suppress(RefusedError):
                truth = trial.truth(other)
                break
        else:
            return
        for name, tensor in every_tensor_in(arguments):
            tensor.copy_(dict(every_tensor_in(dict(other.values)))[name])
        again = trial.run(arguments)
        what = "called again with the same tensors, other values in them"
        trial.compare(again, truth, what, code="OPS-STATE-EARLIER")

    trial.each(one, dtypes=dtypes, examples=trial.some(6), most=3)
    time.sleep(0.02)  # for kernels that go on working after a call has returned
    _many(trial, dtypes)


def _other_values(trial: Trial, case: Case) -> Iterator[Case]:
    """Yield the case with new values in floating tensors, keeping their first elements.

    The others are reversed, and in the first of two cases negated, which the reference may refuse.
    Where only the author's cases are valid, yield others of the same shapes.
    """
    if trial.operator.only_registered_cases:
        yield from alike(trial.operator, case, trial.settings.seed)
        return
    for factor in (-0.5, 1.0):
        values = dict(case.values)
        for parameter in case.signature.parameters:
            value = values[parameter.name]
            free = isinstance(value, Tensor) and value.is_floating_point() and value.numel() > 1
            constraints = parameter.without_columns().constraints
            if free and not constraints and not is_float8(value.dtype):
                flat = value.flatten()
                flat = torch.cat([flat[:1], flat[1:].flip(0) * factor])
                values[parameter.name] = flat.view(value.shape)
        if any(values[name] is not value for name, value in case.values.items()):
            moved = keep_indices(case.signature, case.values, values)
            yield Case(case.signature, moved, {}, case.origin)


def _many(trial: Trial, dtypes: tuple[str | None, ...]) -> None:
    """Make thousands of calls, and compare results along the way and at the end."""
    found: list[tuple[Case, Expected]] = []
    trial.each(
        lambda case: found.append((case, trial.truth(case))),
        dtypes=dtypes,
        wanted=_SMALL,
        examples=1,
        most=1,
    )
    # Call the smallest case last: its calls are short, so that it can also make the calls that
    # the larger case had no time for.
    found.sort(key=lambda one: one[0].numel, reverse=True)
    began, made = time.monotonic(), 0
    for place, (case, truth) in enumerate(found[-2:], 1):
        last = place == len(found[-2:])
        calls = _EqualCalls(trial, case, truth, made)
        trial.runner.announce_case(case, "often")
        try:
            made = calls.make(_LEAST if last else 0, began + trial.settings.seconds)
        except Failure as failure:
            failure.case = failure.case or case
            raise
        finally:
            trial.kernel.repeats = 0
    trial.notes.append(f"{made} calls with equal arguments")
    if found and made < _LEAST:
        trial.counts.due.unfinished = (
            f"stopped after {trial.settings.seconds:g} s and {made} calls with equal arguments; "
            f"{_LEAST} were due"
        )


class _EqualCalls:
    """Calls with equal arguments.

    Args:
        truth: the right results.
        made: number of calls that were made with other arguments before.
    """

    def __init__(self, trial: Trial, case: Case, truth: Expected, made: int) -> None:
        self.trial, self.case, self.truth, self.made = trial, case, truth, made

    def make(self, least: int, end: float) -> int:
        """Call, and return the number of calls so far, those with other arguments included.

        Args:
            least: this many are made in all, unless `end` comes first.
            end: the time after which no more calls are made.
        """
        trial, last = self.trial, self.made + _CALLS
        began, single = time.monotonic(), self.made + _SINGLE
        while self.made < last:
            # In most groups only the last result is compared, which takes longer than a call.
            group = 1 if self.made < single else min(_GROUP, last - self.made)
            before = time.monotonic()
            if group > 1:
                each = (before - began) / _SINGLE
                group = max(1, min(group, int(_GROUP_SECONDS / max(each, 1e-6))))
            trial.kernel.repeats = group - 1
            results = trial.run(trial.make(self.case))
            self.made += group
            now = time.monotonic()
            late = now > end or (self.made >= least and now - began > _ENOUGH_SECONDS)
            if self.made % 150 == 0 or group > 1 or late:
                what = f"after {self.made} calls"
                trial.compare(results, self.truth, what, code="OPS-STATE-EARLIER")
            if late:
                break
        return self.made
