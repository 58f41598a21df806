"""Compute from measured parts how many candidates a second 1 to 1,000 machines judge.

    python benchmarks/many_machines.py [--machines 1 10 100 1000] [--accepted 0.1]

It measures here what the command does for each candidate: to read and digest it, to pickle it, to
read its verdict and to write its line. What a verdict takes is given; `--results FILE` takes it
from the lines of a run. A message of Ray, its starts a second and the network are given too.
"""

import argparse
import json
import pickle
import statistics
import tempfile
import time
from pathlib import Path

from opsmith.judge import service
from opsmith.judge.judge import read_spec

SPEC = Path(__file__).parents[1] / "tests" / "judge" / "spec.py"
#: Seconds of the command for a call of an actor and its answer, assumed.
MESSAGE = 1e-3


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--machines", type=int, nargs="+", default=[1, 3, 10, 30, 100, 300, 1000])
    parser.add_argument("--processors", type=int, default=16, help="of a machine")
    parser.add_argument("--accepted", type=float, default=0.1, help="the share that is accepted")
    parser.add_argument("--refused-seconds", type=float, default=1.0)
    parser.add_argument("--accepted-seconds", type=float, default=10.0)
    parser.add_argument("--start-seconds", type=float, default=10.0, help="of a judge's process")
    parser.add_argument("--starts", type=float, default=100.0, help="of processes, a second")
    parser.add_argument("--candidates", type=int, default=10_000)
    parser.add_argument("--bytes", type=int, default=4096, help="of a candidate's files")
    parser.add_argument("--megabytes", type=float, default=100.0, help="a second, of the network")
    parser.add_argument("--results", type=Path, help="lines whose seconds are taken")
    asked = parser.parse_args()
    candidate, driver, sent = command_seconds(asked.bytes)
    if asked.results:
        seconds = [json.loads(line)["seconds"] for line in asked.results.read_text().splitlines()]
        each = statistics.mean(seconds)
    else:
        each = asked.accepted * asked.accepted_seconds
        each += (1 - asked.accepted) * asked.refused_seconds
    network = asked.megabytes * 1e6 / sent
    most = {"the command": 1 / driver, "its network": network}
    print(f"a verdict takes {each:.2f} s of a processor; the command {driver * 1e3:.2f} ms, of")
    print(f"which twice {candidate * 1e3:.2f} ms to read the candidate; {sent:,} bytes are sent")
    print(f"the command alone: {1 / driver:,.0f} candidates a second; its network: {network:,.0f}")
    print()
    print("| machines | processes | candidates a second | for all, with the start | the limit |")
    print("|---|---|---|---|---|")
    for machines in asked.machines:
        lanes = machines * asked.processors
        rates = {"the judges": lanes / each, **most}
        limit = min(rates, key=rates.__getitem__)
        # A process is idle while its answer and its next candidate wait for the command.
        rate = min(lanes / (each + driver), *most.values())
        last = max(asked.accepted_seconds, each)
        used = min(lanes, asked.candidates)
        total = asked.start_seconds + used / asked.starts + asked.candidates / rate + last
        print(f"| {machines:,} | {lanes:,} | {rate:,.1f} | {total:,.0f} s | {limit} |")


def command_seconds(size: int) -> tuple[float, float, int]:
    """Return the seconds to read a candidate, all of the command's for one, and the bytes sent."""
    facts = {"spec": read_spec(SPEC).state(), "options": {}, "versions": {}}
    verdict = {"outcome": "accepted", "verdict": {"rows": ["x" * 100] * 50}, "seconds": 1.0}
    answer = json.dumps(verdict)
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "k.py"
        file.write_text(f"import spec\nA = '''{'x' * size}'''\n")
        with service._opened(Path(folder) / "r.jsonl") as kept:
            reading = median(lambda: service._key(facts, service._read(file)))
            files = service._read(file)
            line = {"candidate": str(file), **json.loads(answer), "key": "k"}
            rest = median(lambda: (pickle.dumps(files), json.loads(answer), kept.add(line)))
    # It is read once to find its line, and once to be sent.
    return reading, 2 * reading + rest + MESSAGE, len(pickle.dumps(files)) + len(answer)


def median(call) -> float:
    times = []
    for _ in range(200):
        started = time.perf_counter()
        call()
        times.append(time.perf_counter() - started)
    return statistics.median(times)


if __name__ == "__main__":
    main()
