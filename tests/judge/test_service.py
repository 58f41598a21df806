"""Many candidates: one line each, as soon as it is judged, in one run or in several."""

import json
import sys
from pathlib import Path

import pytest
from fake_lane import FakeLane
from test_attacks import RIGHT

from opsmith.checks.cluster import lanes
from opsmith.errors import LoadError, StorageError
from opsmith.judge import NotSandboxedError, judge, service
from opsmith.judge.judge import NothingJudgedError
from opsmith.judge.snapshot import collect
from opsmith.judge.specification import read_spec
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
    for option in (["--ray", "local"], ["--results", tmp_path / "r.jsonl"]):
        one = cli("judge", SPEC, "--candidate", "k.py", *option)
        assert one.code == 2
        assert "--ray and --results are for a folder" in " ".join(one.stderr.split())


@pytest.mark.slow
def test_files_by_value_are_judged_where_their_folders_do_not_exist(tmp_path):
    (tmp_path / "given").mkdir()
    spec, kernels = tmp_path / "given" / "spec.py", tmp_path / "given" / "kernels.py"
    spec.write_text(SPEC.read_text())
    kernels.write_text(f"import beside\n{KERNEL}return {RIGHT}\n")
    (tmp_path / "given" / "beside.py").write_text("")
    given = read_spec(spec), collect(kernels)
    for file in (spec, kernels, tmp_path / "given" / "beside.py"):
        file.unlink()
    (tmp_path / "given").rmdir()
    verdict = judge(*given, examples=5, seed=1, trust_candidate=bool(unavailable()))
    assert verdict.outcome == "accepted", verdict.report
    assert {Path(path).name for path in verdict.digests} == {"spec.py", "kernels.py", "beside.py"}
    assert all(path.startswith(f"{tmp_path}/given/") for path in verdict.digests)
    (tmp_path / "given").mkdir()
    kernels.write_text(f"{KERNEL}return x\n")
    refused = judge(given[0], collect(kernels), examples=5, first=True, **_trusting())
    assert refused.outcome == "refused"


def _trusting():
    return {"trust_candidate": bool(unavailable())}


@pytest.fixture
def judged(monkeypatch):
    """Judge in lanes of this process, by a function that looks at the candidate's text alone."""
    calls = []

    class Verdict:
        def __init__(self, outcome: str) -> None:
            self.outcome = outcome

        def to_json(self) -> str:
            return json.dumps({"accepted": self.outcome == "accepted"})

    def look(spec, candidate, **options):
        if candidate.problem:
            return Verdict("refused")
        text = candidate.contents[candidate.file.name].decode()
        calls.append(candidate.file.name)
        if "nothing" in text:
            raise NothingJudgedError("it registers no kernel")
        if "full" in text:
            raise StorageError("the disk is full")
        return Verdict("accepted" if "right" in text else "refused")

    FakeLane.opened = []
    monkeypatch.setattr(service, "judge", look)
    monkeypatch.setattr(service, "_local", lambda jobs: lanes.Lanes(FakeLane, jobs, jobs))
    return calls


@pytest.fixture
def candidates(tmp_path):
    folder = tmp_path / "candidates"
    folder.mkdir()
    for number in range(12):
        text = ("right", "wrong", "nothing")[number % 3]
        (folder / f"k{number:02}.py").write_text(f"# {text} {number}\n")
    return folder


def run(folder, results=None, spec=SPEC, **options):
    options = {**_trusting(), **options}
    return service.judge_all(spec, sorted(folder.glob("*.py")), results=results, **options)


def test_a_second_run_goes_on_where_the_first_stopped(judged, candidates, tmp_path):
    results = tmp_path / "r.jsonl"
    first = run(candidates, results, jobs=2)
    before = [next(first) for _ in range(5)]
    first.close()
    again = list(run(candidates, results, jobs=2))
    kept = {Path(one["candidate"]).name for one in before}
    assert {name for name in kept if judged.count(name) > 1} == set()
    assert len(judged) <= 12 + 2, "only what a lane was at is judged again"
    names = sorted(Path(one["candidate"]).name for one in again)
    assert names == [f"k{one:02}.py" for one in range(12)]
    assert [one.pop("kept", False) for one in again] == [True] * 5 + [False] * 7
    assert sorted(map(str, again[:5])) == sorted(map(str, before))
    assert {one["outcome"] for one in again} == {"accepted", "refused", "undecided"}
    lines = [json.loads(line) for line in results.read_text().splitlines()]
    assert len({line["key"] for line in lines}) == len(lines) == 12
    opened = len(FakeLane.opened)
    assert all(one["kept"] for one in run(candidates, results))
    assert len(FakeLane.opened) == opened, "where all is kept, no process begins"


def test_what_a_verdict_depends_on_is_judged_again(judged, candidates, tmp_path, monkeypatch):
    results = tmp_path / "r.jsonl"
    list(run(candidates, results, seed=1))

    def judged_again(**options):
        judged.clear()
        said = list(run(candidates, results, **{"seed": 1, **options}))
        assert len(said) == 12
        return sorted(judged)

    every = [f"k{one:02}.py" for one in range(12)]
    assert judged_again() == []
    (candidates / "k03.py").write_text("# right after an edit\n")
    assert judged_again() == ["k03.py"]
    (candidates / "k03.py").write_text("import helper  # right\n")
    (candidates / "helper.txt").write_text("")
    assert judged_again() == ["k03.py"]
    assert judged_again(seed=2) == every
    assert judged_again(examples=7) == every
    spec = tmp_path / "spec.py"
    spec.write_text(f"{SPEC.read_text()}\n")
    assert judged_again(spec=spec) == every
    monkeypatch.setattr(lanes, "version", lambda: "9.9")
    assert judged_again() == every
    assert judged_again() == []


def test_a_folder_that_moved_is_not_judged_again(judged, candidates, tmp_path):
    results = tmp_path / "r.jsonl"
    list(run(candidates, results))
    moved = candidates.rename(tmp_path / "moved")
    said = list(run(moved, results))
    assert all(one["kept"] and one["candidate"].startswith(str(moved)) for one in said)


def test_what_the_machine_is_at_fault_for_is_said_and_not_kept(judged, tmp_path):
    (tmp_path / "k0.py").write_text("# full")
    (tmp_path / "k1.py").write_text("# right")
    results = tmp_path / "r.jsonl"
    full, right = run(tmp_path, results)
    assert (full["outcome"], full["message"]) == ("undecided", "the disk is full")
    assert right["outcome"] == "accepted"
    assert len(results.read_text().splitlines()) == 1
    (missing,) = service.judge_all(SPEC, [tmp_path / "none.py"], results=results, **_trusting())
    assert missing["outcome"] == "undecided"
    assert "none.py cannot be read: No such file or directory" in missing["message"]
    assert len(results.read_text().splitlines()) == 1


def test_a_part_of_a_line_is_cut_off_and_its_candidate_judged_again(judged, candidates, tmp_path):
    results = tmp_path / "r.jsonl"
    list(run(candidates, results))
    whole = results.read_bytes()
    judged.clear()
    results.write_bytes(whole[:-20])
    assert sum("kept" not in one for one in run(candidates, results)) == 1
    assert results.read_bytes().count(b"\n") == 12
    assert [json.loads(line)["outcome"] for line in results.read_text().splitlines()]


def test_results_are_written_by_one_command_and_over_nothing_else(judged, candidates, tmp_path):
    results = tmp_path / "r.jsonl"
    first = run(candidates, results)
    next(first)
    with pytest.raises(StorageError, match=f"another command writes its results to {results}"):
        list(run(candidates, results))
    first.close()
    other = tmp_path / "notes.txt"
    other.write_text("my notes\n")
    with pytest.raises(LoadError, match="is no file of results, by this line: b'my notes"):
        list(run(candidates, other))
    assert other.read_text() == "my notes\n"


def test_a_machine_without_a_sandbox_judges_nothing(judged, candidates, without_sandbox):
    said = []
    with pytest.raises(NotSandboxedError, match="this machine grants no sandbox"):
        list(run(candidates, trust_candidate=False, say=said.append))
    assert judged == []
    assert len(said) == 1


def test_memory_is_shared_among_the_candidates_of_a_machine(judged, candidates, monkeypatch):
    asked = []
    monkeypatch.setattr(service, "judge", lambda *files, **options: asked.append(options) or 1 / 0)
    said = list(run(candidates, jobs=4))
    assert {options["beside"] for options in asked} == {4}
    assert {one["message"] for one in said} == {
        "its process raised ZeroDivisionError: division by zero"
    }


def test_a_sandbox_beside_three_others_gets_a_quarter_of_the_memory(monkeypatch, tmp_path):
    from opsmith.judge.session import Limits, Placement

    monkeypatch.setattr(sys.modules["opsmith.judge.session"], "most_memory", lambda: 4000)
    files = collect(SPEC).copy_to(tmp_path / "copy")
    assert Placement(files, files, Limits(1.0, beside=4)).box(tmp_path).memory == 1000
    assert Placement(files, files, Limits(1.0)).box(tmp_path).memory == 4000


def test_ray_that_is_not_installed_is_named_with_its_extra(cli, tmp_path, monkeypatch):
    (tmp_path / "k.py").write_text("")
    monkeypatch.setitem(sys.modules, "ray", None)
    done = cli("judge", SPEC, "--candidates", tmp_path, "--ray", "local")
    assert done.code == 2
    assert "--ray needs the package ray: pip install 'opsmith[ray]'" in done.stderr
