"""The program that calls a candidate's kernels where nothing reveals the judge."""

import os
import sys
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from opsmith.checks.cases.failure import Failure
from opsmith.judge.judge import _in_order, judge
from opsmith.judge.program import Program
from opsmith.judge.session import Limits, Placement
from opsmith.judge.snapshot import collect
from opsmith.judge.specification import imported
from opsmith.operators.dispatch.gates import gate_libraries
from opsmith.system.processes.sandbox.policy import unavailable

SPEC = Path(__file__).with_name("spec.py")


#: A folder with a file, as those of the gates' libraries in a cache.
GATE = ("gates", "libgate.so")


@contextmanager
def started(tmp_path, before=""):
    """Return a program that imports the spec and a right kernel, and the spec's operator."""
    kernels = tmp_path / "kernels.py"
    kernels.write_text(
        f"import os\nfrom spec import scale\n\n{before}\n\n"
        "@scale.register_kernel('cpu')\ndef kernel(x, factor):\n"
        "    return x * factor + x.sum(1, keepdim=True)\n"
    )
    spec, candidate = (
        collect(SPEC).copy_to(tmp_path / "spec"),
        collect(kernels).copy_to(tmp_path / "kernels"),
    )
    place = Placement(spec, candidate, Limits(60.0, namespaces=not unavailable()))
    with imported(spec) as operators, Program(place, tmp_path / "main") as program:
        yield program, operators[0]


@pytest.fixture
def program(tmp_path, monkeypatch):
    """Return a program whose gates are in a cache, and the spec's operator."""
    gate = tmp_path.joinpath(*GATE)
    gate.parent.mkdir()
    gate.touch()
    monkeypatch.setattr(gate_libraries, "folders", lambda: [gate.parent])
    with started(tmp_path, f"assert os.path.isfile({str(gate)!r}), 'no gate'") as found:
        yield found


def _open() -> set[str]:
    """Return what this process has open, by descriptor."""
    found = set()
    for name in os.listdir("/proc/self/fd"):
        try:
            found.add(f"{name} {os.readlink(f'/proc/self/fd/{name}')}")
        except FileNotFoundError:
            continue  # the descriptor of the folder itself
    return found


def _children() -> set[str]:
    return set(Path(f"/proc/self/task/{os.getpid()}/children").read_text().split())


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_program_that_was_started_and_not_needed_leaves_nothing(program) -> None:
    program, _ = program
    before = _open(), _children()
    program.begin()
    assert len(_children() - before[1]) == 1
    program.stop()
    # What another test left may have ended meanwhile.
    assert (_open() - before[0], _children() - before[1]) == (set(), set())


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_a_program_that_makes_calls_nobody_waits_for_leaves_nothing(program) -> None:
    program, operator = program
    before = _open(), _children()
    program.ask_ahead(operator, [{"x": torch.randn(3, 5), "factor": 1.5}])
    assert len(_children()) == len(before[1]) + 1
    program.end()
    assert _open() <= before[0], "its folder is not held any more, either"
    assert _children() == before[1]


@pytest.mark.slow
def test_results_are_those_of_the_calls_that_were_asked_last(program) -> None:
    program, operator = program
    calls = [{"x": torch.randn(3, 5), "factor": factor} for factor in (1.5, 2.5)]
    for arguments in calls:
        program.ask_ahead(operator, [arguments])
    (results,) = [results() for results in program.run_all(operator, [calls[1]])]
    assert results[0].allclose(operator.reference(**calls[1]))
    (results,) = [results() for results in program.run_all(operator, [calls[0]])]
    assert results[0].allclose(operator.reference(**calls[0])), "asked anew"


@pytest.mark.slow
def test_a_program_gives_results_whether_it_was_started_before_or_not(program) -> None:
    program, operator = program
    arguments = {"x": torch.randn(3, 5), "factor": 1.5}
    expected = operator.reference(**arguments)
    for ahead in (True, False):
        if ahead:
            program.begin()
        every = [results() for results in program.run_all(operator, [arguments])]
        assert len(every) == 1
        assert every[0][0].allclose(expected)


@pytest.mark.parametrize("seed", range(20))
def test_the_first_call_of_a_program_has_elements_wherever_a_case_has(seed) -> None:
    cases = [(SimpleNamespace(numel=numel), numel) for numel in (0, 0, 0, 0, 6, 0, 0, 8)]
    ordered = [numel for _, numel in _in_order(cases, seed)]  # type: ignore[arg-type]
    assert sorted(ordered[:2]) == [6, 8]
    assert ordered[2:] == [0] * 6


def test_the_seed_decides_the_order_of_a_programs_calls() -> None:
    cases = [(SimpleNamespace(numel=numel), None) for numel in range(1, 30)]
    orders = {
        tuple(case.numel for case, _ in _in_order(cases, seed))  # type: ignore[arg-type]
        for seed in range(5)
    }
    assert len(orders) == 5


def test_a_program_that_takes_more_memory_than_its_calls_need_is_ended(program, monkeypatch):
    program, operator = program
    monkeypatch.setattr("opsmith.judge.program._BASE_BYTES", 0)
    monkeypatch.setattr("opsmith.judge.program.most_for", lambda elements: 1 << 20)
    with pytest.raises(Failure, match=r"took more than 0\.0 GiB of memory, .*") as raised:
        list(program.run_all(operator, [{"x": torch.randn(3, 5), "factor": 1.5}]))
    assert raised.value.code == "OPS-CALL-MEMORY"


#: At the end, writes where the results went; the program itself has closed its descriptor.
_MORE = """
import atexit
copies = []
for one in range(3, 1000):
    try:
        copies.append(os.dup(one))
    except OSError:
        pass
def more():
    for one in copies:
        try:
            os.write(one, b'{"event": "results"}\\n')
        except OSError:
            pass
atexit.register(more)
"""


@pytest.mark.slow
def test_what_a_program_sends_after_its_results_is_garbage(tmp_path):
    with started(tmp_path, _MORE) as (program, operator):
        with pytest.raises(
            Failure, match=r"cannot be read \(more came than was announced"
        ) as raised:
            list(program.run_all(operator, [{"x": torch.randn(3, 5), "factor": 1.5}]))
        assert raised.value.code == "OPS-JUDGE-ANSWER"


@pytest.mark.long
def test_a_program_that_does_not_end_after_its_results_is_not_waited_for(tmp_path):
    never = "import atexit, time\natexit.register(time.sleep, 10_000)"
    with started(tmp_path, never) as (program, operator):
        program._limit = 20.0
        with pytest.raises(Failure, match="did not return within 20 s") as raised:
            list(program.run_all(operator, [{"x": torch.randn(3, 5), "factor": 1.5}]))
        assert raised.value.code == "OPS-CALL-HANG"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("result", "outcome", "begun"),
    [
        ("return x * factor + x.sum(1, keepdim=True)", "accepted", [0]),
        ("return x * factor", "refused", []),
        ("return (x * factor + x.sum(1, keepdim=True)).nan_to_num()", "refused", [0]),
    ],
    ids=["right", "wrong at once", "wrong for NaN alone"],
)
@pytest.mark.usefixtures("brief_shrinking")
def test_a_program_begins_when_the_first_cases_are_right_beside_the_others(
    tmp_path, monkeypatch, result, outcome, begun
):
    kernels = tmp_path / "kernels.py"
    kernels.write_text(
        "from spec import scale\n\n@scale.register_kernel('cpu')\n"
        f"def kernel(x, factor):\n    {result}\n"
    )
    rows, found, ask = [], [], Program.ask_ahead

    def asked(*given):
        found.append(len(rows))
        ask(*given)

    monkeypatch.setattr(Program, "ask_ahead", asked)
    verdict = judge(SPEC, kernels, examples=12, first=True, on_row=rows.append)
    assert (verdict.outcome, found) == (outcome, begun)
