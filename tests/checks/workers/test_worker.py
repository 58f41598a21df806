import importlib
import os
import signal
import subprocess
import sys
import time

import faults_endings as endings
import pytest
from jaxtyping import Float32
from torch import Tensor

import opsmith
from opsmith import checks, testing
from opsmith.sources.importing import import_operators
from opsmith.system.processes import memory, supervisor
from opsmith.system.processes.launch import python
from opsmith.system.processes.supervisor_client import EndError, Supervised

pytestmark = pytest.mark.slow(cases=2)

#: What ends its process, or gives wrong values only after other calls; and two that do neither.
ENDING = [
    endings.segfault,
    endings.abort,
    endings.leave,
    endings.leave_86,
    endings.close_all,
    endings.late,
    endings.stale,
    endings.always_wrong,
    endings.double,
]


@pytest.fixture(scope="module")
def rows():
    """The row of each in one run of them all, by its operator."""
    report = checks.run(ENDING, select=["reference"])
    assert len(report.rows) == len(ENDING)
    return {row.operator: row for row in report.rows}


@pytest.mark.parametrize(
    ("operator", "words", "code"),
    [
        (endings.segfault, "crashed with signal 11 (SIGSEGV)", "OPS-CALL-CRASH"),
        (endings.abort, "crashed with signal 6 (SIGABRT)", "OPS-CALL-CRASH"),
        (endings.leave, "ended the process with exit code 7", "OPS-CALL-EXIT"),
        (endings.leave_86, "ended the process with exit code 86", "OPS-CALL-EXIT"),
    ],
    ids=lambda value: getattr(value, "name", None),
)
def test_a_crash_is_a_failed_check_with_the_smallest_case(rows, operator, words, code):
    row = rows[operator.name]
    assert row.status == "failed"
    assert words in row.message
    assert row.code == code
    text = row.explain()
    size = 1 if operator is endings.leave_86 else 4
    assert f"smallest case: x: float32 ({size},) [" in text
    assert (
        "\n  repeat: opsmith check tests/faults/faults_endings.py --check reference --seed 0\n"
        in text
    )


def test_what_the_process_said_last_is_shown(rows):
    said = "it said:\n    about to read address 0"
    assert said in rows[endings.segfault.name].explain()


def test_a_hang_is_a_failed_check_and_rows_that_need_it_do_not_run():
    report = checks.run(endings.hang, select=["dispatch", "reference", "build"], time_limit=1.0)
    (hung,) = report.failures
    assert hung.message == "did not return within 1 s"
    assert hung.code == "OPS-CALL-HANG"
    assert hung.case.startswith("x: float32 (")
    assert hung.command.endswith("--seed 0 --time-limit 1")
    assert sorted(row.status for row in report.rows) == ["failed", "not run"]


@pytest.mark.long
def test_after_a_hang_the_other_checks_get_little_time_and_after_three_none():
    select = ["dispatch", "reference", "aliasing", "mutation", "side-effects"]
    report = checks.run(endings.hang, select=select, time_limit=8.0)
    first, second, third, *others = report.rows
    assert (first.check, first.status, first.code) == ("dispatch", "failed", "OPS-CALL-HANG")
    assert first.message == "did not return within 8 s"
    assert first.command.endswith("--time-limit 8")
    for row in (second, third):
        assert (row.status, row.message) == ("not run", "says no more than dispatch")
    assert [row.check for row in others] == ["aliasing", "side-effects"]
    for row in others:
        assert row.status == "not run"
        hung = f"{first.check}, {second.check}, {third.check}"
        assert row.message == f"not run, since {hung} hung. To run it alone: --check NAME"


def test_a_kernel_that_takes_all_memory_is_a_failed_check(monkeypatch):
    monkeypatch.setattr(memory, "_FLOOR", 300 << 20)
    (row,) = checks.run(endings.grow, select=["aliasing"]).rows
    assert row.message.startswith("took more than 0.3 GiB of memory, and was ended before")
    assert row.code == "OPS-CALL-MEMORY"
    assert row.case.startswith("x: float32 (4,)")


def test_a_reference_that_takes_all_memory_is_told_as_that_and_flags_no_kernel(monkeypatch):
    monkeypatch.setattr(memory, "_FLOOR", 300 << 20)
    (row,) = checks.run(endings.growing_reference, select=["reference"]).rows
    assert row.message.startswith("the reference took more than 0.3 GiB of memory, and was ended")
    assert (row.status, row.where) == ("cut short", "")


def test_memory_that_a_case_explains_is_no_failure():
    bound = memory.bound_for(os.getpid(), 1_000_000)
    assert bound is not None
    assert bound.most - bound.size() > 1_000_000 * 8 * 100
    assert not bound.exceeded()


def test_answers_that_a_kernel_invents_are_a_named_failure():
    report = checks.run(endings.shout, select=["reference", "mutation"])
    for row, process in zip(report.rows, ["the kernel's", "the checking"], strict=True):
        assert row.status == "failed"
        assert f"{process} process gave an answer that cannot be read" in row.message
        assert row.code == "OPS-CHECK-LOST"
        assert row.case.startswith("x: float32 (")


def test_a_kernel_that_closes_every_descriptor_harms_its_own_row_only(rows):
    closed = rows[endings.close_all.name]
    assert closed.message.startswith("ended the process with exit code")
    assert closed.case
    assert rows[endings.double.name].status == "passed"


def test_a_kernel_that_forks_is_named_wherever_it_runs():
    for name in ("reference", "mutation", "side-effects"):
        (row,) = checks.run(endings.forks, select=[name]).rows
        assert row.status == "failed"
        assert row.code == "OPS-CALL-FORK"
        assert row.message.startswith("forked the process that called it: a copy of that is there")
        # A copy that has ended before the call does is nobody's matter.
        assert row.case.startswith("x: float32 (4,)")


def test_a_kernel_that_starts_a_program_has_not_forked():
    assert checks.run(endings.starts_a_program, select=["reference", "mutation"]).ok


def test_what_a_kernel_starts_ends_with_the_run(monkeypatch, tmp_path):
    pid = tmp_path / "pid"
    monkeypatch.setenv("OPSMITH_TEST_SPAWNED", str(pid))
    checks.run(endings.spawn, select=["reference"], examples=2)
    _ended(int(pid.read_text()))


@pytest.mark.long
@pytest.mark.parametrize(
    ("number", "jobs"),
    [
        (signal.SIGTERM, 1),
        (signal.SIGINT, 1),
        (signal.SIGINT, 2),
        (signal.SIGHUP, 2),
        (signal.SIGKILL, 2),
    ],
)
def test_nothing_is_left_of_a_check_that_is_ended(number, jobs, tmp_path):
    started = tmp_path / "started"
    program = f"""
import sys
sys.path[:] = {sys.path!r}
import faults_endings as endings
from opsmith import checks
checks.run(endings.spin, select=["reference", "opcheck"], time_limit=600, jobs={jobs})
"""
    environment = {**os.environ, "OPSMITH_TEST_SPAWNED": str(started), "TMPDIR": str(tmp_path)}
    parent = subprocess.Popen(
        [sys.executable, "-c", program], env=environment, stderr=subprocess.DEVNULL
    )
    try:
        for _ in range(1200):
            if started.is_file() and started.read_text():
                break
            time.sleep(0.1)
        kernel = int(started.read_text())
        parent.send_signal(number)
        parent.wait(timeout=60)
    finally:
        parent.kill()
    _ended(kernel)
    for _ in range(600):
        if not list(tmp_path.glob("opsmith-check-*")):
            break
        time.sleep(0.1)
    assert list(tmp_path.glob("opsmith-check-*")) == []


@pytest.fixture
def importing(tmp_path, monkeypatch):
    """A module that never ends to import, and the file that says which process does."""
    pid = tmp_path / "pid"
    (tmp_path / "endless.py").write_text(
        "import os, pathlib, time\n"
        f"pathlib.Path({str(pid)!r}).write_text(f'{{os.getpid()}} ')\n"
        "time.sleep(600)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)

    def process() -> int:
        for _ in range(600):
            if pid.is_file() and pid.read_text().endswith(" "):
                return int(pid.read_text())
            time.sleep(0.1)
        raise AssertionError("nothing was started")

    return process


def test_a_worker_that_still_imports_ends_with_its_parent(importing, tmp_path):
    program = f"""
import sys, time
sys.path[:] = {sys.path!r}
from opsmith.system.processes.launch import python
from opsmith.system.processes.supervisor_client import Supervised
from opsmith.sources.importing import import_operators
Supervised(python("endless")).begin()
time.sleep(600)
"""
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    parent = subprocess.Popen([sys.executable, "-c", program], env=environment)
    try:
        worker = importing()
    finally:
        parent.kill()
        parent.wait()
    _ended(worker)
    assert list(tmp_path.glob("opsmith-check-*")) == []


def test_a_worker_that_still_imports_is_not_waited_for(importing, monkeypatch):
    waited = []
    with Supervised(python("endless")) as worker:
        worker.begin()
        process = importing()
        wait = subprocess.Popen.wait
        monkeypatch.setattr(
            subprocess.Popen,
            "wait",
            lambda self, timeout=None: waited.append(self.poll() or wait(self, timeout)),
        )
    assert waited == [-signal.SIGKILL]
    _ended(process)


def test_a_worker_that_still_imports_can_be_interrupted(importing):
    with Supervised(python("endless")) as worker:
        worker.begin()
        importing()
        worker.interrupt()
        with pytest.raises(EndError, match=r"^the checking process is gone"):
            worker.make_ready()


def _ended(process: int) -> None:
    """Wait until there is no such process."""
    for _ in range(600):
        try:
            os.kill(process, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    raise AssertionError(f"process {process} is still there")


@pytest.mark.long  # test_native.py::test_where_the_build_fails_nothing_...
def test_a_build_that_failed_is_not_tried_again(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    (tmp_path / "semicolon.cpp").write_text("int no_semicolon = 1\n")
    (tmp_path / "semicolon.py").write_text(
        "import opsmith\nfrom jaxtyping import Float\nfrom torch import Tensor\n"
        "@opsmith.op('endings::semicolon')\n"
        "def semicolon(x: Float[Tensor, 'N']) -> Float[Tensor, 'N']:\n    return x * 2\n"
        "semicolon.register_kernel('cpu', source='semicolon.cpp')\n"
    )
    import semicolon

    report = checks.run(semicolon.semicolon)
    build, *others = report.rows
    assert build.check == "build"
    assert "semicolon.cpp did not compile" in build.message
    assert len(others) > 10
    assert {(row.status, row.message, row.seconds) for row in others} == {
        ("not run", "not built", 0.0)
    }
    assert not report.ok


@pytest.mark.slow(cases=1)  # the other imports the compiler
@pytest.mark.parametrize(
    ("name", "select", "asked"),
    [
        # In a process of its own garbage is looked for as often as anywhere, too.
        ("collecting_apart", ["reference", "statefulness"], "gc.get_threshold() == usual"),
        ("collecting", ["fake", "opcheck"], "gc.isenabled()"),
    ],
)
def test_garbage_is_collected_where_kernels_run(tmp_path, monkeypatch, name, select, asked):
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    (tmp_path / f"{name}.py").write_text(
        "import gc\nimport opsmith\nfrom jaxtyping import Float\nfrom torch import Tensor\n"
        "assert gc.isenabled()\n"
        "usual = gc.get_threshold()\n"
        f"@opsmith.op('endings::{name}')\n"
        "def collecting(x: Float[Tensor, 'N']) -> Float[Tensor, 'N']:\n    return x * 2\n"
        "@collecting.register_kernel('cpu')\n"
        f"def _(x: Tensor) -> Tensor:\n    return x * 2 if {asked} else x\n"
    )
    module = importlib.import_module(name)
    report = checks.run(module.collecting, select=select, examples=3)
    assert report.ok, report.explain()


@pytest.mark.slow(cases=1)  # another variable is another process that imports torch
@pytest.mark.parametrize(("asked", "kept"), [(None, 20000), ("5000", 5000)])
def test_more_of_what_is_known_of_sizes_is_kept_unless_somebody_said_how_much(
    tmp_path, monkeypatch, asked, kept
):
    if asked is None:
        monkeypatch.delenv("SYMPY_CACHE_SIZE", raising=False)
    else:
        monkeypatch.setenv("SYMPY_CACHE_SIZE", asked)
    name = f"keeping_{kept}"
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    (tmp_path / f"{name}.py").write_text(
        "import opsmith\nfrom jaxtyping import Float\nfrom torch import Tensor\n"
        "from sympy.core.cache import SYMPY_CACHE_SIZE\n"
        f"@opsmith.op('endings::{name}')\n"
        "def keeping(x: Float[Tensor, 'N']) -> Float[Tensor, 'N']:\n    return x * 2\n"
        "@keeping.register_kernel('cpu')\n"
        f"def _(x: Tensor) -> Tensor:\n    return x * 2 if SYMPY_CACHE_SIZE == {kept} else x\n"
    )
    (operator,) = import_operators(str(tmp_path / f"{name}.py")).operators
    report = checks.run(operator, select=["reference"], examples=3)
    assert report.ok, report.explain()


def test_an_operator_in_no_file_is_checked_here():
    @opsmith.op("endings::local")
    def local(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
        return x * 2

    ran = []

    @local.register_kernel("cpu")
    def _(x: Tensor) -> Tensor:
        ran.append(x)
        return x * 2

    assert checks.run(local, select=["reference"]).ok
    assert ran


def test_the_same_seed_gives_the_same_cases_in_any_process():
    def failing(isolate: bool, seed: int) -> str:
        report = checks.run(endings.odd, select=["reference"], isolate=isolate, seed=seed)
        return report.rows[0].case

    first = failing(True, 1)
    assert first
    assert first == failing(True, 1)
    assert first == failing(False, 1)
    assert [len(case["x"]) for case in testing.cases(endings.odd, seed=1)] != [
        len(case["x"]) for case in testing.cases(endings.odd, seed=2)
    ]


def test_a_value_that_depends_on_earlier_calls_is_said_to(rows):
    found = rows[endings.stale.name]
    assert found.status == "failed"
    assert found.message.startswith("the result[0] is ")
    assert "The same call is right in a fresh process: what it gives depends on" in found.message


def test_a_value_that_is_wrong_by_itself_is_not_said_to_depend_on_earlier_calls(rows):
    found = rows[endings.always_wrong.name]
    assert found.status == "failed"
    assert "fresh process" not in found.message


def test_a_crash_that_an_earlier_call_may_have_caused_is_said_to_be(rows):
    found = rows[endings.late.name]
    assert "crashed with signal 6 (SIGABRT)" in found.message
    assert "called alone in a fresh process it does not crash" in found.message
    assert "alone" not in rows[endings.abort.name].message


def test_what_is_cached_by_inductor_lies_where_it_always_does():
    from torch._inductor.runtime.cache_dir_utils import default_cache_dir

    assert supervisor._inductor_cache() == default_cache_dir()


def test_processes_are_forked_from_one_that_imported_no_compiler_and_knows_all_constants(tmp_path):
    program = f"""
import os, sys
from pathlib import Path
from hypothesis.internal.conjecture import providers
from opsmith.checks import worker_server
from opsmith.system.processes import supervisor

worker_server.import_all()
supervisor._keep_files_in(Path({str(tmp_path)!r}))
assert providers._sys_modules_len, "Hypothesis has not looked for constants"
print([name for name in ("torch._inductor", "torch._dynamo") if name in sys.modules])
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.stdout == "[]\n", done.stderr


WRONG = """
import os, sys
from pathlib import Path
import opsmith
from jaxtyping import Float32
from torch import Tensor

SEEN = Path(__file__).with_name("seen")

@opsmith.op("compiler_seen::doubled")
def doubled(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
    with SEEN.open("a") as seen:
        print(os.getpid(), "torch._dynamo" in sys.modules, file=seen)
    return x * 2

@doubled.register_kernel("cpu")
def _(x):
    return x * 3
"""


@pytest.mark.long  # test_processes_are_forked_from_one_that_imported_no_compiler
def test_after_a_row_that_imported_the_compiler_no_row_imports_it_again(tmp_path, monkeypatch):
    monkeypatch.setattr(sys, "path", [str(tmp_path), *sys.path])
    (tmp_path / "compiler_seen.py").write_text(WRONG)
    (operator,) = import_operators(str(tmp_path / "compiler_seen.py")).operators
    report = checks.run(operator, select=["reference", "mutation"], examples=4)
    assert [(row.check, row.status) for row in report.rows] == [
        ("reference", "failed"),
        ("mutation", "passed"),
    ]
    at_first: dict[str, str] = {}
    for line in (tmp_path / "seen").read_text().splitlines():
        process, imported = line.split()
        at_first.setdefault(process, imported)
    # Each row, and the case that it failed with once more, alone.
    assert list(at_first.values()) == ["False", "True", "True", "True"]


REFERENCE = """
import os, torch, opsmith
from jaxtyping import Float32
from torch import Tensor

@opsmith.op("worker::fragile")
def fragile(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
    os.abort()

@fragile.register_kernel("cpu")
def _(x):
    return x * 2
"""


CASES = """
@fragile.register_cases
def _(dtype, seed):
    os.abort()
"""


@pytest.mark.parametrize(
    ("cases", "whose"),
    [("", "the reference"), (CASES, "the reference, or a function of register_cases,")],
    ids=["the reference", "cases"],
)
def test_a_reference_that_crashes_is_not_told_as_the_kernels_crash(tmp_path, cases, whose):
    file = tmp_path / "fragile.py"
    # Each file declares an operator of its own.
    file.write_text((REFERENCE + cases).replace("fragile", "fragile_cases" if cases else "fragile"))
    (operator,) = import_operators(str(file)).operators
    (row,) = [one for one in checks.run(operator, select=["reference"]).rows if one.kernel == "cpu"]
    assert row.message.startswith(f"{whose} crashed with signal 6 (SIGABRT)")
    assert "kernel:" not in row.explain()
