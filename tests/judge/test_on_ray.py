"""Candidates on a cluster of three nodes that Ray makes on this machine."""

import json
import os
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest
from test_attacks import RIGHT

from opsmith.checks.cluster import on_ray
from opsmith.checks.cluster.lanes import Lost, each_answer
from opsmith.errors import LoadError
from opsmith.judge import service

pytestmark = pytest.mark.slow

SPEC = Path(__file__).with_name("spec.py")
KERNEL = "from spec import scale\n\n\n@scale.register_kernel('cpu')\ndef kernel(x, factor):\n    "
OPTIONS = {"first": True, "examples": 5, "time_limit": 5.0, "seed": 3}


@pytest.fixture
def candidates(tmp_path):
    kernels = {
        "hangs": "while True: pass",
        "takes_memory": "kept = [b'x' * 2**28 for _ in range(2**12)]",
        "kills": "import os, signal\n    os.kill(os.getppid(), signal.SIGKILL)\n    os._exit(1)",
        "right": f"return {RIGHT}",
        **{f"wrong{number}": f"return x + {number}" for number in range(8)},
    }
    folder = tmp_path / "candidates"
    folder.mkdir()
    for name, body in kernels.items():
        (folder / f"{name}.py").write_text(f"{KERNEL}{body}\n")
    return sorted(folder.glob("*.py"))


def test_each_candidate_is_judged_once_where_a_node_is_killed(cluster, candidates, tmp_path):
    results, said = tmp_path / "r.jsonl", []
    found = {}
    for one in service.judge_all(
        SPEC, candidates, ray=cluster.address, results=results, say=said.append, **OPTIONS
    ):
        name = Path(one["candidate"]).stem
        assert name not in found
        found[name] = one
        if len(found) == 4:
            cluster.remove_node(cluster.others.pop(), allow_graceful=False)
    assert len(found) == len(candidates) == 12
    assert Counter(one["outcome"] for one in found.values()) == {"accepted": 1, "refused": 11}
    assert found["right"]["outcome"] == "accepted"
    assert all(one["verdict"]["sandboxed"] for one in found.values())
    assert all(str(SPEC) in one["verdict"]["files"] for one in found.values())
    keys = Counter(json.loads(line)["key"] for line in results.read_text().splitlines())
    assert len(keys) == keys.total() == 12
    assert len(said) == 1
    assert "what it worked at begins again: " in said[0]


@pytest.mark.long
def test_two_hundred_candidates_are_judged_once_each_where_a_node_is_killed(cluster, tmp_path):
    results, folder, said = tmp_path / "r.jsonl", tmp_path / "candidates", []
    folder.mkdir()
    for number in range(200):
        body = f"return {RIGHT}" if number % 20 == 0 else f"return x + {number}"
        (folder / f"k{number:03}.py").write_text(f"{KERNEL}{body}\n")
    candidates = sorted(folder.glob("*.py"))
    found = []
    for one in service.judge_all(
        SPEC, candidates, ray=cluster.address, results=results, say=said.append, **OPTIONS
    ):
        found.append(one)
        if len(found) == 60:
            cluster.remove_node(cluster.others.pop(), allow_graceful=False)
    assert sorted(Path(one["candidate"]).name for one in found) == [one.name for one in candidates]
    assert Counter(one["outcome"] for one in found) == {"accepted": 10, "refused": 190}
    keys = Counter(json.loads(line)["key"] for line in results.read_text().splitlines())
    assert len(keys) == keys.total() == 200
    assert said, "the node was at a candidate"


def test_a_driver_that_is_killed_is_started_again_and_goes_on(cluster, candidates, tmp_path):
    results, folder = tmp_path / "r.jsonl", candidates[0].parent
    for slow in ("hangs", "takes_memory", "kills"):
        (folder / f"{slow}.py").unlink()
    command = [sys.executable, "-m", "opsmith", "judge", SPEC, "--candidates", folder]
    command += ["--ray", cluster.address, "--results", results, "--first", "--examples", 5]
    command = [*map(str, command), "--time-limit", "5", "--seed", "3"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as first:
        lines = [first.stdout.readline() for _ in range(3)]
        first.send_signal(signal.SIGKILL)
    assert all(json.loads(line)["outcome"] for line in lines)
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 1, done.stderr
    again = [json.loads(line) for line in done.stdout.splitlines()]
    assert len({one["candidate"] for one in again}) == len(again) == 9
    assert sum("kept" in one for one in again) >= 3
    assert len(results.read_text().splitlines()) == 9


def test_a_process_of_the_cluster_runs_as_one_of_this_machine_does(cluster):
    said = []
    with on_ray.lanes_of(cluster.address, None) as lanes:
        assert (lanes.count, lanes.beside) == (3, 1)
        work = {
            "threads": (os.environ.get, "OMP_NUM_THREADS"),
            "error": (int, "no number"),
            "ends": (os._exit, 3),
            "data": (bytes.decode, b"\xc3\xa4" * 100_000),
        }
        found = dict(
            each_answer(
                list(work), lanes, (os.getpid,), work.__getitem__, patience=600, say=said.append
            )
        )
    assert found["threads"] is None
    assert found["data"] == "ä" * 100_000
    assert "invalid literal for int" in found["error"].reason
    assert isinstance(found["ends"], Lost)
    assert found["ends"].reason.startswith("its process ended 3 times: ")
    assert len(said) == 2


def test_an_address_where_no_cluster_answers_is_named(cluster):
    with pytest.raises(LoadError, match=r"no cluster of Ray answers at 127\.0\.0\.1:9: "):
        list(service.judge_all(SPEC, [SPEC], ray="127.0.0.1:9"))
