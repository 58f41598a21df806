"""Many candidates: one line each, as soon as it is judged."""

import json
from pathlib import Path

import pytest
from test_attacks import RIGHT

from opsmith.judge import service
from opsmith.system.processes.sandbox.policy import unavailable

SPEC = Path(__file__).with_name("spec.py")
KERNEL = "from spec import scale\n\n\n@scale.register_kernel('cpu')\ndef kernel(x, factor):\n    "


@pytest.mark.long
def test_each_file_of_a_folder_gets_a_line(cli, tmp_path):
    (tmp_path / "a_right.py").write_text(f"{KERNEL}return {RIGHT}\n")
    (tmp_path / "b_wrong.py").write_text(f"{KERNEL}return x\n")
    (tmp_path / "c_none.py").write_text("import spec\n")
    (tmp_path / "d_note.txt").write_text("no candidate")
    options = ["--examples", 2, "--jobs", 2, "--first", "--seed", 5, "--seconds", 600]
    options += ["--trust-candidate"] if unavailable() else []
    done = cli("judge", SPEC, "--candidates", tmp_path, *options)
    said = {Path(one["candidate"]).stem: one for one in map(json.loads, done.stdout.splitlines())}
    assert {name: one["outcome"] for name, one in said.items()} == {
        "a_right": "accepted",
        "b_wrong": "refused",
        "c_none": "undecided",
    }
    assert said["a_right"]["verdict"]["accepted"] is True
    assert said["a_right"]["verdict"]["seed"] == 5
    assert "registers no kernel" in said["c_none"]["message"]
    assert all(one["seconds"] > 0 for one in said.values())
    assert done.code == 1


def test_a_folder_or_a_file_is_named_and_not_both(cli, tmp_path):
    assert cli("judge", SPEC).code == 2
    assert cli("judge", SPEC, "--candidate", "k.py", "--candidates", tmp_path).code == 2
    empty = cli("judge", SPEC, "--candidates", tmp_path)
    assert empty.code == 2
    assert "has no Python files" in empty.stderr


def test_a_judge_that_is_ended_leaves_its_candidates_undecided(monkeypatch):
    class Broken:
        def __init__(self, *arguments, **options):
            self.asked = []

        def __enter__(self):
            return self

        def __exit__(self, *error):
            return None

        def submit(self, *arguments):
            from concurrent.futures import Future

            future = Future()
            future.set_exception(service.BrokenProcessPool())
            return future

    monkeypatch.setattr(service, "ProcessPoolExecutor", Broken)
    (said,) = service.judge_all(SPEC, ["k.py"])
    assert said["outcome"] == "undecided"
    assert "ended from outside" in said["message"]
