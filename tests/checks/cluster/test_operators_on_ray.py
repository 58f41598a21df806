"""Operators checked on a cluster of three nodes that Ray makes on this machine."""

import json
import re
import signal
import subprocess
import sys
import time

import pytest
from test_operators import DECLARATION, ENDS, RIGHT, WRONG

pytestmark = pytest.mark.slow

#: Tells on which node a kernel runs: each has a raylet.
MARK = """
import os, time
from pathlib import Path

def mark():
    Path(__file__).with_suffix("." + os.environ.get("RAY_RAYLET_PID", "none")).touch()

"""
BODIES = {
    "ends": ENDS,
    "wrong": WRONG,
    "hangs": "while True: pass",
    **{f"right{number}": f"time.sleep(0.05); {RIGHT}" for number in range(5)},
}
OPTIONS = ["--check", "reference,mutation", "--examples", "3", "--seed", "5", "--time-limit", "10"]


@pytest.fixture
def check(tmp_path):
    """Start a command that checks eight operators; rows go to stderr."""
    for name, body in BODIES.items():
        text = DECLARATION.format(name=name, body=f"mark()\n    {body}")
        (tmp_path / f"{name}.py").write_text(MARK + text)

    def started(*options):
        command = [sys.executable, "-m", "opsmith", "check", *(f"{name}.py" for name in BODIES)]
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen([*command, *OPTIONS, "--json", *options], cwd=tmp_path, **pipes)

    return started


def read(process, lines):
    """Return so many lines of what a process says, or fewer if it ends."""
    return "".join(process.stderr.readline() for _ in range(lines))


def timeless(table):
    return re.sub(r" +[\d.]+ s\b", " _ s", table).splitlines()


def rows_of(report):
    """Return the rows but for what differs from run to run: times, and errors while shrinking."""
    varies = "seconds", "timings", "error", "samples"
    return [{**row, **dict.fromkeys(varies)} for row in json.loads(report)["rows"]]


def test_the_report_is_that_of_one_machine_where_a_node_is_killed(check, cluster, tmp_path):
    node = cluster.others.pop()
    (raylet,) = node.all_processes["raylet"]
    with check("--ray", cluster.address) as many:
        while not list(tmp_path.glob(f"*.{raylet.process.pid}")):
            assert many.poll() is None
            time.sleep(0.05)
        cluster.remove_node(node, allow_graceful=False)
        said, table = many.communicate()
    with check() as one:
        expected, own = one.communicate()
    assert many.returncode == one.returncode == 1
    again = [line for line in table.splitlines() if line.startswith("a process ended, ")]
    assert len(again) == 1
    assert timeless(table.replace(f"{again[0]}\n", "")) == timeless(own)
    assert rows_of(said) == rows_of(expected)
    assert len(rows_of(said)) == 2 * len(BODIES)


def test_ctrl_c_tells_what_passed_until_then(check, cluster):
    with check("--ray", cluster.address) as running:
        read(running, 5)
        running.send_signal(signal.SIGINT)
        said, rest = running.communicate()
    assert running.returncode == 130, rest
    assert said == ""
    assert re.search(r"error: interrupted; \d+ failed, .*and the rest did not run\n", rest)
