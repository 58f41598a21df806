"""Kill opsmith while it builds, exports and checks, and look for what is left of it.

Run it as ``python tests/kills.py 100``, or a part of it as ``python tests/kills.py 100 --first 40``
(those after the first 40): so many kills, in turn by SIGKILL, SIGTERM and SIGINT, each
at a random moment of `opsmith build`, `opsmith export` or `opsmith check` with an empty cache of
its own. After each it waits until all processes have ended, and looks for what would not be there
without the kill: temporary folders, half artifacts, files in the cache under a temporary name.
Where there are any, and after every fifth kill, it runs the same command undisturbed: that must
work, and leave nothing.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

SIGNALS = (signal.SIGKILL, signal.SIGTERM, signal.SIGINT)
_MODEL = """
import torch
from my_op import my_op

class Model(torch.nn.Module):
    def forward(self, x, weight):
        return my_op(x, weight) + 1

def example():
    return Model(), (torch.randn(4, 3), torch.randn(3))
"""
COMMANDS: Mapping[str, tuple[str, ...]] = {
    "build": ("build", "my_op.py"),
    "export": ("export", "model.py:example", "--target", "aotinductor", "--overwrite"),
    "check": ("check", "my_op.py", "--check", "reference,bounds,onnxruntime", "--allow-cut-short"),
}
_TURNS = ("build", "export", "build", "check")
#: By this variable processes are found, whoever started them.
_MARK = "OPSMITH_TEST_KILLS"
#: For so long processes may take to end after a kill.
PATIENCE_SECONDS = 60.0
_TEMPORARY = re.compile(r"^\..*\.opsmith-[a-z0-9_]{8}$|\.partial$|\.replaced$|\.scratch$")


@dataclass
class Place:
    """A folder of its own for one kill: operator, cache, temporary files, artifact."""

    folder: Path
    mark: str = field(default_factory=lambda: os.urandom(8).hex())

    def __post_init__(self) -> None:
        for name in ("tmp", "cache", "inductor"):
            (self.folder / name).mkdir(parents=True)
        new = [sys.executable, "-m", "opsmith", "new", "my_op", "--dir", str(self.folder)]
        subprocess.run(new, check=True, capture_output=True)
        (self.work / "model.py").write_text(_MODEL)

    @property
    def work(self) -> Path:
        return self.folder / "my_op"

    def environment(self) -> dict[str, str]:
        return {
            **os.environ,
            _MARK: self.mark,
            "TMPDIR": str(self.folder / "tmp"),
            "OPSMITH_CACHE": str(self.folder / "cache"),
            "TORCHINDUCTOR_CACHE_DIR": str(self.folder / "inductor"),
        }

    def start(self, command: str) -> subprocess.Popen[bytes]:
        with (self.folder / "output").open("wb") as output:
            return subprocess.Popen(
                [sys.executable, "-m", "opsmith", *COMMANDS[command]],
                cwd=self.work,
                env=self.environment(),
                stdout=output,
                stderr=output,
                # A shell that runs this in the background has them ignored.
                preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
            )

    def processes(self) -> list[int]:
        """Whoever was started with the mark and has not ended."""
        wanted = f"{_MARK}={self.mark}".encode()
        found = []
        for name in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(OSError):
                if wanted in Path(f"/proc/{name}/environ").read_bytes().split(b"\0"):
                    found.append(int(name))
        return found

    def ended(self) -> list[str]:
        """Wait until all processes have ended; the command lines of those that do not."""
        wait_until(lambda: not self.processes())
        return self.commands()

    def commands(self) -> list[str]:
        """The command lines of `processes`."""
        return [_command(process) for process in self.processes()]

    def left(self) -> list[str]:
        """Temporary files, half artifacts, and files of the cache that have no name yet."""
        found = [f"tmp/{path.name}" for path in (self.folder / "tmp").iterdir()]
        for place in (self.folder / "cache", self.work):
            for path in place.rglob("*"):
                if _TEMPORARY.search(path.name):
                    found.append(str(path.relative_to(self.folder)))
        return sorted(found)


@dataclass
class Outcome:
    """What a kill left: processes, files at once, and files after the next run."""

    command: str
    signal: signal.Signals
    after: float
    killed: bool
    processes: list[str]
    at_once: list[str]
    later: list[str]
    failed: str = ""
    ran_again: bool = False

    @property
    def clean(self) -> bool:
        return not (self.processes or self.later or self.failed)

    def __str__(self) -> str:
        parts = [f"{self.command:6} {self.signal.name:7} after {self.after:5.1f} s"]
        parts += [] if self.killed else ["(had ended)"]
        parts += [f"{len(self.at_once)} left at once: {self.at_once}"] if self.at_once else []
        parts += [f"LEFT: {self.later}"] if self.later else []
        parts += [f"PROCESSES: {self.processes}"] if self.processes else []
        parts += [f"THE NEXT RUN FAILED: {self.failed}"] if self.failed else []
        return "  ".join(parts)


def kill(
    folder: Path, command: str, number: signal.Signals, seconds: float, again: bool
) -> Outcome:
    """Run a command in an empty folder, and kill it after so many seconds.

    Args:
        folder: is made.
        command: one of `COMMANDS`.
        number: by which signal.
        seconds: after how long.
        again: whether to run it again where nothing is left, too.
    """
    place = Place(folder)
    process = place.start(command)
    started = time.monotonic()
    try:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=seconds)
        killed, after = process.poll() is None, time.monotonic() - started
        process.send_signal(number)
        # Where it does not end, it is among the processes that are left.
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(timeout=PATIENCE_SECONDS)
        processes, at_once = place.ended(), place.left()
    finally:
        process.kill()
        process.wait()
    failed = ""
    again = again or bool(at_once)
    if again:
        code = place.start(command).wait()
        failed = "" if code == 0 else f"exit code {code}: {(folder / 'output').read_text()[-2000:]}"
        processes += place.ended()
    return Outcome(command, number, after, killed, processes, at_once, place.left(), failed, again)


def wait_until(holds: Callable[[], bool]) -> bool:
    """Wait until something holds; whether it does, within `PATIENCE_SECONDS`."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (held := holds()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return held


def _command(process: int) -> str:
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{process}/cmdline").read_bytes().split(b"\0")
        return b" ".join(words).decode(errors="replace")[:200]
    return str(process)


def lengths(folder: Path) -> dict[str, float]:
    """How long each command takes with an empty cache."""
    found = {}
    for command in COMMANDS:
        place = Place(folder / command)
        started = time.monotonic()
        code = place.start(command).wait()
        assert code == 0, (place.folder / "output").read_text()
        found[command] = time.monotonic() - started
        assert not place.left(), place.left()
    return found


def plan(count: int, seed: int, times: Mapping[str, float]) -> Iterator[tuple[str, int, float]]:
    """So many kills: each command by each signal in turn, at moments that are spread out."""
    draw = random.Random(seed)
    for number in range(count):
        command = _TURNS[number // len(SIGNALS) % len(_TURNS)]
        yield command, number % len(SIGNALS), draw.uniform(0.05, 0.8) * times[command]


def hit(place: Path, command: str, number: signal.Signals, seconds: float, again: bool) -> Outcome:
    """Kill a command that runs: where it had ended by then, run it anew and kill it earlier.

    The arguments are those of `kill`.
    """
    while not (outcome := kill(place, command, number, seconds, again)).killed and outcome.clean:
        shutil.rmtree(place)
        seconds = outcome.after * random.Random(place.name).uniform(0.3, 0.8)
    return outcome


def main() -> None:
    """Print what each kill left, and the sums; the exit code says whether anything was."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("count", type=int, nargs="?", default=100)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--first", type=int, default=0, help="leave out so many of them")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="kills-") as folder:
        times = lengths(Path(folder, "lengths"))
        print("  ".join(f"{name} takes {one:.1f} s" for name, one in times.items()), flush=True)
        outcomes = []
        kills = [*enumerate(plan(asked.count, asked.seed, times))]
        for number, (command, which, seconds) in kills[asked.first :]:
            place = Path(folder, str(number))
            outcome = hit(place, command, SIGNALS[which], seconds, again=number % 5 == 0)
            outcomes.append(outcome)
            print(f"{number + 1:4}  {outcome}", flush=True)
            shutil.rmtree(place, ignore_errors=True)
    for name in COMMANDS:
        own = [one for one in outcomes if one.command == name]
        signals = Counter(one.signal.name for one in own if one.killed)
        print(f"{name}: {len(own)} kills, {dict(signals)} while it ran")
    print(
        f"{len(outcomes)} kills: {sum(bool(one.processes) for one in outcomes)} left a process, "
        f"{sum(bool(one.at_once) for one in outcomes)} a file until the next run, "
        f"{sum(bool(one.later) for one in outcomes)} a file after it, "
        f"{sum(bool(one.failed) for one in outcomes)} a next run that fails "
        f"(of {sum(one.ran_again for one in outcomes)})"
    )
    sys.exit(not all(one.clean for one in outcomes))


if __name__ == "__main__":
    main()
