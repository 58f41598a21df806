"""Call operators with arguments as nobody would pass them on purpose, in every runtime.

python tests/fuzz/fuzz_run.py                        1,000 calls in each runtime
    --calls 10000                                    so many in each, over its operators
    --calls 2000 --first 300                         more, after each operator's first 300
    --runtimes eager jax --operators take add_to     these alone
    --runtimes eager --operators take --at 4711      one call, and its outcome

Calls are made in processes of their own: one that crashes or hangs is counted, and compared with
`torch.add` of the same arguments. The columns: calls that were accepted (and agree with the
reference); that were refused; of these in percent, those whose message lacks the operator or the
argument; that PyTorch or JAX refused before the operator was reached, or in the words that it has
for `torch.add` compiled or traced with the same arguments (elsewhere); whose results could not be
compared (unchecked); wrong results; crashes; hangs.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

#: Seconds without a word after which a process hangs, while it loads and in one call.
LOADING, HANGING = 600, 90
COLUMNS = ["accepted", "refused", "elsewhere", "unchecked", "wrong", "crashed", "hung"]


@dataclass
class Tally:
    """Outcomes of the calls of one operator in one runtime.

    Attributes:
        runtime: which.
        operator: its short name.
        counts: calls by outcome.
        notes: of calls to look at, the outcome, the number, what was said, and the call.
        stale: calls that left state of PyTorch's behind, so that the next had a new process.
    """

    runtime: str
    operator: str
    counts: Counter[str] = field(default_factory=Counter)
    notes: list[tuple[str, int, str, str]] = field(default_factory=list)
    stale: list[str] = field(default_factory=list)

    @property
    def refused(self) -> int:
        """The calls that opsmith refused, whatever it said."""
        return self.counts["refused"] + self.counts["unnamed"]

    def add(self, outcome: str, number: int, note: str = "", call: str = "") -> None:
        """Count one call."""
        self.counts[outcome] += 1
        if outcome not in ("accepted", "refused"):
            self.notes.append((outcome, number, note, call))


class Child:
    """A process that makes the calls of one runtime: it is loaded once for all operators."""

    def __init__(self, runtime: str, operators: Sequence[str], folder: Path, seed: str):
        words = [runtime, folder.resolve(), ",".join(operators), seed]
        self._process = subprocess.Popen(
            [sys.executable, HERE / "fuzz_child.py", *map(str, words)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "OMP_NUM_THREADS": "1"},
        )
        self._pending = b""
        self._caller = self._process.pid
        words = self._read(LOADING)
        if words != ["loaded"]:
            self.end()
            raise SystemExit(f"{runtime}: the process did not start: {words}")

    def calls(self, operator: str, first: int, last: int, what: str) -> Iterator[list[Any]]:
        """Have calls made, and tell what is said of them, ``died`` and ``hung`` among it."""
        assert self._process.stdin is not None
        self._process.stdin.write(f"{operator} {first} {last} {what}\n".encode())
        self._process.stdin.flush()
        words: list[Any] = [""]
        while words[0] not in ("done", "died", "hung", "stale"):
            words = self._read(HANGING) or ["hung"]
            if words[0] == "process":
                self._caller = words[1]
            yield words
        if words[0] == "hung":
            os.kill(self._caller, signal.SIGKILL)
            if self._caller != self._process.pid:
                self._read(HANGING)
            else:
                self._process.wait()

    def _read(self, seconds: float) -> list[Any] | None:
        """Return the next answer; `None` after the time limit, and ``died`` if the child ended."""
        assert self._process.stdout is not None
        descriptor = self._process.stdout.fileno()
        while b"\n" not in self._pending:
            if not select.select([descriptor], [], [], seconds)[0]:
                return None
            more = os.read(descriptor, 1 << 16)
            if not more:
                return ["died", self.end()]
            self._pending += more
        line, _, self._pending = self._pending.partition(b"\n")
        words: list[Any] = json.loads(line)
        return words

    def is_alive(self) -> bool:
        """Return whether the child can make more calls."""
        return self._process.poll() is None

    def end(self) -> int:
        """End the process; its exit status."""
        assert self._process.stdin is not None
        self._process.stdin.close()
        try:
            return self._process.wait(5)
        except subprocess.TimeoutExpired:
            self._process.kill()
        return self._process.wait()


class Fuzz:
    """Makes calls in as many processes as it takes: usually one for a runtime.

    Args:
        runtime: its name.
        operators: their short names.
        folder: for the artifacts.
        seed: decides the calls, with their numbers.
    """

    def __init__(self, runtime: str, operators: Sequence[str], folder: Path, seed: str):
        self._words = (runtime, operators, folder, seed)
        self._current: Child | None = None

    def _child(self) -> Child:
        if self._current is None or not self._current.is_alive():
            self._current = Child(*self._words)
        return self._current

    def calls(self, operator: str, first: int, last: int) -> Tally:
        """Make the calls of these numbers, and count what comes of them."""
        tally, call, before = Tally(self._words[0], operator), "", ""
        while first < last:
            began = first
            for words in self._child().calls(operator, first, last, "fuzz"):
                if words[0] == "begin":
                    first, call = words[1:]
                elif words[0] == "end":
                    note = words[3] if len(words) > 3 else ""
                    tally.add(words[2], first, note, call)
                    # This call is not to blame for what follows before the next one begins.
                    first, before, call = first + 1, call, "while the call was drawn"
            if words[0] == "done":
                break
            if words[0] == "stale":
                tally.stale.append(before)
                continue
            outcome = "hung"
            if words[0] == "died":
                same = self._kills_torch_add(operator, began, first)
                outcome = "crashed as torch.add" if same else "crashed"
            tally.add(outcome, first, f"{outcome}: {words}", call)
            first += 1
        return tally

    def _kills_torch_add(self, operator: str, first: int, number: int) -> bool:
        """Return whether `torch.add` ends the process in a call, too.

        The calls from `first` on come before it, as a crash may need what a compiler keeps of
        these. Where `torch.add` ends the process in an earlier call, the calls after that remain.
        """
        while first <= number:
            said = [*self._child().calls(operator, first, number + 1, "baseline")]
            reached = [words[1] for words in said if words[0] == "begin"]
            if said[-1][0] == "done" or not reached:
                return False
            if reached[-1] == number:
                return True
            first = reached[-1] + 1
        return False

    def end(self) -> None:
        """End the process."""
        if self._current is not None:
            self._current.end()


def table(tallies: list[Tally]) -> str:
    """The summary: a row per runtime and operator, and one per runtime."""
    lines = [
        f"{'runtime':<12} {'operator':<10} {'calls':>7} "
        + " ".join(f"{name:>9}" for name in COLUMNS)
        + f" {'unnamed':>8} {'%':>6}"
    ]
    for runtime in dict.fromkeys(one.runtime for one in tallies):
        rows = [one for one in tallies if one.runtime == runtime]
        every = Tally(runtime, "all")
        for one in rows:
            every.counts += one.counts
        for one in [*rows, every]:
            counts = {**one.counts, "refused": one.refused}
            unnamed = one.counts["unnamed"]
            share = 100 * unnamed / max(one.refused, 1)
            lines.append(
                f"{runtime:<12} {one.operator:<10} {sum(one.counts.values()):>7} "
                + " ".join(f"{counts.get(name, 0):>9}" for name in COLUMNS)
                + f" {unnamed:>8} {share:>6.2f}"
            )
        excused = every.counts["crashed as torch.add"]
        if excused:
            lines.append(f"{runtime:<12} {excused} crashed as torch.add does")
        stale = sum(len(one.stale) for one in rows)
        if stale:
            lines.append(f"{runtime:<12} {stale} left state of PyTorch's behind")
    return "\n".join(lines)


def notes(tallies: list[Tally], most: int) -> str:
    """The calls to look at, like ones together, the most frequent first."""
    found: dict[tuple[str, str, str], list[str]] = {}
    for tally in tallies:
        for outcome, number, note, call in tally.notes:
            start = "".join("#" if c.isdigit() else c for c in note.partition(": ")[2])[:60]
            key = (tally.runtime, outcome, start or note)
            found.setdefault(key, []).append(
                f"{tally.operator} --at {number}\n    {call}\n    {note}"
            )
    order = sorted(found.items(), key=lambda one: (one[0][:2], -len(one[1])))
    shown: Counter[tuple[str, str]] = Counter()
    lines = []
    for (runtime, outcome, _), calls in order:
        shown[runtime, outcome] += 1
        if shown[runtime, outcome] <= most:
            lines.append(f"{len(calls)} x {outcome}: {runtime} {calls[0]}")
    for tally in tallies:
        kinds = Counter(
            "; ".join(sorted({w.partition(": ")[2] or w for w in call.split("; ")[1].split(", ")}))
            for call in tally.stale
        )
        lines += [
            f"{count} x stale: {tally.runtime} {tally.operator}: {kind}"
            for kind, count in kinds.most_common(5)
        ]
    return "\n".join(lines)


def failures(tallies: list[Tally], share: float) -> list[str]:
    """Return the outcomes that fail the run."""
    found = []
    for one in tallies:
        place = f"{one.operator} in {one.runtime}"
        for outcome in ("wrong", "crashed", "hung"):
            if one.counts[outcome]:
                found.append(f"{place}: {one.counts[outcome]} {outcome}")
    for runtime in dict.fromkeys(one.runtime for one in tallies):
        rows = [one for one in tallies if one.runtime == runtime]
        refused = sum(one.refused for one in rows)
        unnamed = sum(one.counts["unnamed"] for one in rows)
        if unnamed > share * refused:
            found.append(f"{runtime}: {unnamed} of {refused} messages lack operator or argument")
    return found


def run(
    runtimes: list[str], operators: list[str], folder: Path, seed: str, calls: int, first: int = 0
) -> list[Tally]:
    """Fuzz each operator in each runtime that has it, with so many calls in each runtime."""
    from fuzz_runtimes import RUNTIMES

    tallies = []
    for name in runtimes:
        runtime = RUNTIMES[name](folder, operators)
        runtime.prepare()
        fuzz = Fuzz(name, runtime.chosen, folder, seed)
        for operator in runtime.chosen:
            start = time.monotonic()
            last = first + -(-calls // len(runtime.chosen))
            tally = fuzz.calls(operator, first, last)
            tallies.append(tally)
            seconds = time.monotonic() - start
            print(f"{name} {operator}: {dict(tally.counts)}, {seconds:.0f} s", file=sys.stderr)
        fuzz.end()
    return tallies


def main() -> None:
    from fuzz_runtimes import RUNTIMES

    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--runtimes", nargs="+", default=list(RUNTIMES), choices=list(RUNTIMES))
    parser.add_argument("--operators", nargs="+", default=[])
    parser.add_argument("--calls", type=int, default=1000, help="in each runtime")
    parser.add_argument("--first", type=int, default=0, help="each operator's number to begin at")
    parser.add_argument("--seed", default="0")
    parser.add_argument("--at", type=int, help="make one call, and show its outcome")
    parser.add_argument("--most", type=int, default=12, help="how many kinds of notes to show")
    parser.add_argument("--folder", type=Path, default=Path("build") / "fuzz")
    parser.add_argument("--keep", action="store_true", help="take the artifacts of the last run")
    options = parser.parse_args()
    if options.at is not None:
        for name in options.runtimes:
            for operator in options.operators:
                fuzz = Fuzz(name, [operator], options.folder, options.seed)
                tally = fuzz.calls(operator, options.at, options.at + 1)
                fuzz.end()
                print(name, operator, tally.counts, *tally.notes, sep="\n  ")
        return
    if not options.keep:
        shutil.rmtree(options.folder, ignore_errors=True)
    tallies = run(
        options.runtimes,
        options.operators,
        options.folder.resolve(),
        options.seed,
        options.calls,
        options.first,
    )
    print(notes(tallies, options.most))
    print(table(tallies))
    failed = failures(tallies, 0.01)
    print("\n".join(failed) or "nothing wrong")
    sys.exit(bool(failed))


if __name__ == "__main__":
    main()
