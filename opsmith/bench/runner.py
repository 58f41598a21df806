"""`run`: time contestants in turns, round by round, and compare their results."""

from __future__ import annotations

import random
import statistics
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path

from torch import Tensor

from opsmith.bench.figures import (
    COMPILED,
    GRADIENT,
    Benchmark,
    Figure,
    Status,
    show_bytes,
    show_seconds,
)
from opsmith.bench.inputs import Batch, Supply, supplies
from opsmith.bench.machine import Machine, describe
from opsmith.bench.result_check import Verifier
from opsmith.bench.timer import Entry, NotTimedError, Stopwatch
from opsmith.checks.cases.subject import REFERENCE, Subject, subjects_of
from opsmith.checks.isolation.import_location import locate
from opsmith.errors import OpsmithError
from opsmith.operators import Operator
from opsmith.operators.core.author_rules import Cost
from opsmith.sources.importing import end_import

Progress = Callable[[int, int, str], None]

#: The target duration of a batch of calls, the most bytes of its arguments, and the most calls.
_SECONDS, _BYTES, _CALLS = 0.008, 32 << 20, 4096
_ATTEMPTS = 4
#: A round has at least this many calls: two batches of different lengths need three.
_FEWEST = 3
#: Number of timings without a call in each round, and the smallest fraction of a batch's time that
#: calls must make up.
_IDLE, _LEAST_PART = 3, 0.2
#: One call of a round in this many belongs to the shorter batch.
_SHORT = 8
#: Number of rounds that are run however long they take.
_LEAST_ROUNDS = 5


class NoSuchContestantError(OpsmithError):
    """No contestant has this name."""

    exit_code = 2


def run(
    operators: Operator | Iterable[Operator],
    *,
    sizes: Sequence[Mapping[str, int]] = (),
    dtype: str | None = None,
    only: Sequence[str] = (),
    candidate: str | Path | None = None,
    rounds: int = 15,
    seconds: float = 20.0,
    cases: int = 3,
    time_limit: float = 60.0,
    progress: Progress | None = None,
    on_group: Callable[[list[Figure], Machine], None] | None = None,
) -> Benchmark:
    """Time every kernel and runtime of some operators against their references.

    Args:
        operators: operators that are declared in files.
        sizes: the sizes to time instead of those of `register_sizes`.
        dtype: the generic dtype; float32 by default if the kernel has it.
        only: names of contestants (``"cpu kernel"``); all by default. The reference always runs.
        candidate: a file that registers further kernels. Only the process that is timed imports it.
        rounds: number of times that each contestant is timed.
        seconds: after this long the rounds of one size end, but not before the fifth.
        cases: number of registered cases to time if no sizes are registered, the largest ones.
        time_limit: the seconds that a batch of calls may take; compiling gets ten times as long.
        progress: called before each step.
        on_group: called with the figures of each size as soon as they are ready, and the machine.

    Raises:
        NothingToTimeError: there are no sizes to time.
        NotLocatedError: an operator is not declared in a file.
        NoSuchContestantError: `only` names no contestant.
    """
    end_import("opsmith.bench.run")
    many = [operators] if isinstance(operators, Operator) else list(operators)
    machine = describe()
    benchmark = Benchmark(machine=machine)
    file = Path(candidate).resolve() if candidate is not None else None
    with ExitStack() as stack:
        watch = stack.enter_context(Stopwatch(candidate=file, time_limit=time_limit))
        references: dict[str, Stopwatch] = {}
        for operator in many:
            location = locate(operator)
            watch.turn_to(location)
            entries = watch.entries()
            _require_known(only, operator, entries)
            for device in dict.fromkeys(entry.device for entry in entries):
                if device not in references:
                    beside = Stopwatch(reference=True, device=device, time_limit=time_limit)
                    references[device] = stack.enter_context(beside)
                reference = references[device]
                reference.turn_to(location)
                lanes = [(one, reference) for one in reference.entries()]
                lanes += [(one, watch) for one in entries if one.device == device]
                names = {REFERENCE, *only}
                if any(name.endswith(GRADIENT) for name in only):
                    names.add(f"{REFERENCE}{GRADIENT}")
                wanted = [x for x in lanes if not only or x[0].name in names]
                subject = _subject(operator, device)
                chosen = dtype or subject.favourite
                for supply in supplies(subject, chosen, sizes, cases):
                    race = _Race(supply, wanted, machine, reference, device)
                    figures = race.run(rounds, seconds, progress or (lambda *_: None))
                    benchmark.figures += figures
                    if on_group is not None:
                        on_group(figures, machine)
    return benchmark


def _require_known(only: Sequence[str], operator: Operator, entries: Sequence[Entry]) -> None:
    known = [REFERENCE, f"{REFERENCE}{COMPILED}", *(entry.name for entry in entries)]
    if any(name.endswith(GRADIENT) for name in known):
        known.insert(2, f"{REFERENCE}{GRADIENT}")
    if only and not set(only) & set(known):
        raise NoSuchContestantError(
            f"{operator.name}: there is no {' and no '.join(map(repr, only))} to time; there are "
            f"{', '.join(map(repr, known))}"
        )


def _subject(operator: Operator, device: str) -> Subject:
    for subject in subjects_of(operator):
        if subject.device == device:
            return subject
    return Subject(operator, REFERENCE, device)


@dataclass
class _Lane:
    """A contestant in a race.

    Attributes:
        message: why it left the race.
        spent: by round, the seconds of its short batch and of its long batch.
    """

    name: str
    stopwatch: Stopwatch
    status: Status = "timed"
    message: str = ""
    calls: int = _FEWEST
    spent: dict[int, tuple[float, float]] = field(default_factory=dict)

    @property
    def goes_back(self) -> bool:
        """Return whether gradients are timed too."""
        return self.name.endswith(GRADIENT)

    @property
    def running(self) -> bool:
        """Return whether the contestant is still in the race."""
        return self.status == "timed"

    @property
    def split(self) -> tuple[int, int]:
        """The numbers of calls in the short batch and in the long batch."""
        few = max(1, self.calls // _SHORT)
        return few, self.calls - few

    def seconds(self, idle: float) -> dict[int, float]:
        """Return the time of a call, by round.

        Args:
            idle: the shortest time of a batch without a call.
        """
        return {number: (sum(one) - 2 * idle) / self.calls for number, one in self.spent.items()}

    def leave(self, status: Status, message: str) -> None:
        """Take the contestant out of the race."""
        self.status, self.message = status, message


class _Race:
    """All contestants at one size.

    Args:
        lanes: the contestants, with the stopwatches that time them.
        machine: receives the measurements of the machine in each round.
        yardstick: the stopwatch that measures the machine.
    """

    def __init__(
        self,
        supply: Supply,
        lanes: Sequence[tuple[Entry, Stopwatch]],
        machine: Machine,
        yardstick: Stopwatch,
        device: str,
    ) -> None:
        self._supply = supply
        self._machine = machine
        self._yardstick = yardstick
        self._device = device
        self._machine.dtype = supply.dtype if supply.dtype == "float64" else "float32"
        self._verdicts = {
            goes_back: Verifier(supply.operator, gradient=goes_back) for goes_back in (False, True)
        }
        self._lanes = [_Lane(entry.name, stopwatch) for entry, stopwatch in lanes]
        for lane, (entry, _) in zip(self._lanes, lanes, strict=True):
            if entry.obstacle:
                lane.leave("not applicable", entry.obstacle)
        self._sizes: dict[bool, list[int]] = {}
        self._idle: dict[bool, float] = {}
        back = [lane for lane in self._lanes if lane.running and lane.goes_back]
        obstacle = self._verdicts[True].obstacle(supply.first) if back else ""
        for lane in back if obstacle else ():
            lane.leave("not applicable", obstacle)

    def run(self, rounds: int, seconds: float, progress: Progress) -> list[Figure]:
        """Run the race, and return a figure for each contestant."""
        what = f"{self._supply.operator.name} {self._supply.label}"
        running = [lane for lane in self._lanes if lane.running]
        steps = len(running) + rounds
        for stopwatch in {lane.stopwatch for lane in running}:
            stopwatch.forget()
        for step, lane in enumerate(running):
            progress(step, steps, f"{what}: {lane.name}")
            with _leaving(lane):
                self._prepare(lane)
                self._calibrate(lane)
        started = time.monotonic()
        for number in range(rounds):
            if number >= _LEAST_ROUNDS and time.monotonic() - started > seconds:
                break
            progress(len(running) + number, steps, f"{what}: round {number + 1}")
            self._machine.measure(self._yardstick, self._device)
            random.shuffle(running)
            for lane in running:
                with _leaving(lane):
                    if lane.running:
                        self._turn(lane, number)
            self._measure_idle()
        progress(steps, steps, "")
        return list(self._figures())

    def _prepare(self, lane: _Lane) -> None:
        lane.stopwatch.prepare(lane.name, self._supply.batch(1))

    def _calibrate(self, lane: _Lane) -> None:
        """Find the number of calls that a round needs."""
        most = max(_FEWEST, min(_CALLS, _BYTES // max(self._supply.bytes, 1)))
        lane.calls = _FEWEST
        while lane.calls < most:
            lane.stopwatch.place(self._supply.batch(lane.calls))
            # Time several batches: first calls are slow, and so are calls that other processes
            # interrupt.
            if all(
                lane.stopwatch.time(lane.name, 0, lane.calls, 0, 0)[0] >= _SECONDS
                for _ in range(_ATTEMPTS)
            ):
                break
            lane.calls = min(most, 4 * lane.calls)

    def _turn(self, lane: _Lane, number: int) -> None:
        """Time a contestant once, and compare a result of each batch."""
        stopwatch = lane.stopwatch
        if lane.name not in stopwatch.prepared:
            self._prepare(lane)  # another contestant crashed the process
        few, many = lane.split
        batch = self._supply.batch(lane.calls)
        stopwatch.place(batch)
        spent = []
        for first, count in ((0, few), (few, many)):
            looked = random.randrange(count)
            flush = self._machine.flush
            changes = self._supply.changes(batch, first + looked)
            taken, results, made = stopwatch.time(lane.name, first, count, looked, flush, changes)
            batch.change(first + looked, made)
            spent.append(taken)
            # If comparing is slow, compare one of the two batches at random, so that a kernel
            # cannot predict which.
            if not self._verdicts[lane.goes_back].slow or random.random() < 0.5:
                self._compare(lane, batch, first + looked, results, number)
        lane.spent[number] = (spent[0], spent[1])

    def _measure_idle(self) -> None:
        """Time what a batch takes besides calls: its messages, and copies as large as its results.

        It is the reference's process, since the timed one could be slow on purpose. The shortest
        time counts, so that no call seems faster than it is.
        """
        for goes_back, sizes in self._sizes.items():
            for _ in range(_IDLE):
                taken = self._yardstick.idle(sizes, self._machine.flush, self._device)
                self._idle[goes_back] = min(taken, self._idle.get(goes_back, taken))

    def _compare(
        self, lane: _Lane, batch: Batch, number: int, results: Sequence[Tensor], round_: int
    ) -> None:
        verdict = self._verdicts[lane.goes_back]
        problem = verdict.problem(batch.arguments(number), results)
        if problem:
            lane.leave(
                "refused",
                f"a timed call gave a wrong result (round {round_ + 1}, call {number + 1} of "
                f"{lane.calls}): {problem}",
            )
        else:
            self._sizes[lane.goes_back] = [result.nbytes for result in results]

    # --- what came out -----------------------------------------------------------------------

    def _figures(self) -> Iterator[Figure]:
        operator, supply = self._supply.operator, self._supply
        cost = operator.cost(supply.first) if operator.cost is not None else Cost()
        by_name = {lane.name: lane for lane in self._lanes}
        for lane in self._lanes:
            base = by_name.get(f"{REFERENCE}{GRADIENT if lane.goes_back else ''}")
            # A gradient does more work than the author stated for the call.
            stated = Cost() if lane.goes_back else cost
            self._require_possible(lane, cost)
            figure = Figure(
                operator.name,
                supply.label,
                supply.dtype,
                self._device,
                lane.name,
                lane.status,
                lane.message,
                bytes=stated.bytes,
                operations=stated.operations,
                notes=tuple(self._notes(lane)),
            )
            if lane.running:
                idle = self._idle.get(lane.goes_back, 0.0)
                seconds = lane.seconds(idle)
                other = base.seconds(idle) if base is not None and base.running else {}
                speedups = [other[n] / taken for n, taken in seconds.items() if n in other]
                taken = tuple(seconds.values())
                figure = replace(figure, seconds=taken, speedups=tuple(speedups))
            yield figure

    def _notes(self, lane: _Lane) -> Iterator[str]:
        if self._supply.repeats:
            yield (
                "every call got the same numbers, as the registered cases do not change with the "
                "seed: a kernel that remembers results is not found out"
            )
        if self._verdicts[lane.goes_back].slow:
            yield "results were compared with the largest tolerance of the first call's"

    def _require_possible(self, lane: _Lane, cost: Cost) -> None:
        """Refuse a time that is impossibly short, or too short beside the cost of messages."""
        if not lane.running:
            return
        if not lane.spent:
            lane.leave("failed", "no round was run to its end")
            return
        idle = self._idle.get(lane.goes_back, 0.0)
        batches = statistics.median(sum(one) for one in lane.spent.values())
        if batches - 2 * idle < _LEAST_PART * batches:
            lane.leave(
                "refused",
                f"of the {show_seconds(batches)} that {lane.calls} calls took, messages and the "
                f"copy of results take {show_seconds(2 * idle)}: too little is left to tell what a "
                "call takes",
            )
            return
        median = statistics.median(lane.seconds(idle).values())
        least = self._machine.least_seconds(cost.bytes or 0)
        if median < least:
            lane.leave(
                "refused",
                f"a call took {show_seconds(median)}, and moving {show_bytes(cost.bytes or 0)} "
                f"takes at least {show_seconds(least)} here. It does not do the work, or "
                "register_cost states too much",
            )


@contextmanager
def _leaving(lane: _Lane) -> Iterator[None]:
    """Take a contestant out of the race if it cannot be timed."""
    try:
        yield
    except NotTimedError as error:
        lane.leave("failed", str(error))
