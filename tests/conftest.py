import gc
import logging
import os
import shutil
import signal
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any
from unittest import mock

import pytest
from hypothesis import HealthCheck, settings

# A third of the time of these tests would go into optimising code that runs for a moment. What is
# in the environment already wins: `CXXFLAGS=-O3 make test` compiles as a user's build does. PyTorch
# reads the others when it is imported, so nothing here imports it before. The third keeps inductor
# from compiling and loading a program for each kind of vector instructions, in every process. With
# the fourth, threads that wait for others sleep: as many tests run as there are cores, and each has
# as many threads, so what they wait for would wait for the core that they spin on. JAX is tested on
# the CPU: where its own build finds a GPU that it cannot use, it fails.
os.environ.setdefault("CXXFLAGS", "-O1")
os.environ.setdefault("AOT_INDUCTOR_COMPILE_WRAPPER_OPT_LEVEL", "O0")
os.environ.setdefault("TORCHINDUCTOR_VEC_ISA_OK", "0")
os.environ.setdefault("OMP_WAIT_POLICY", "passive")
os.environ.setdefault("JAX_PLATFORMS", "cpu")

# What runs in the background of a shell ignores these, and so would all that it starts. Tests that
# send them want what a program in a terminal does.
for _number, _usual in (
    (signal.SIGINT, signal.default_int_handler),
    (signal.SIGHUP, signal.SIG_DFL),
):
    if signal.getsignal(_number) is signal.SIG_IGN:
        signal.signal(_number, _usual)

# A busy machine takes as long for an example as it takes; that says nothing about the code. The
# fixtures that examples share change nothing. A list that a test gives takes the place of this.
settings.register_profile(
    "tests",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture],
)
settings.load_profile("tests")

# What a trace or an export leaves is a hundred thousand objects that live on: with Python's own
# thresholds a tenth of the time of these tests goes into looking at them. Each file of tests begins
# with a collection of all.
gc.set_threshold(10_000, 20, 20)


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Iterator[None]:
    """Import the tests without the collector, which would look at all of it again and again.

    Afterwards PyTorch is there. Its trace log takes a stack and a text of each step of a trace as
    soon as it has a handler, and pytest gives its own to each logger that does not propagate.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()
        logging.getLogger("torch.__trace").propagate = True


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Leave as many cases of a slow test in its tier as its mark says; the others are long.

    They are evenly spread, the first and the last among them. A mark that says no number keeps all.
    """
    cases = defaultdict(list)
    for item in items:
        mark = item.get_closest_marker("slow")
        if mark and "cases" in mark.kwargs:
            cases[item.nodeid.partition("[")[0], mark.kwargs["cases"]].append(item)
    for (_, count), several in cases.items():
        # With the last: where two things are combined, both change from the first case to it.
        kept = {number * (len(several) - 1) // max(count - 1, 1) for number in range(count)}
        for number, item in enumerate(several):
            if number not in kept:
                item.add_marker("long")


@pytest.fixture(scope="module", autouse=True)
def _quick_garbage_collection() -> None:
    """Have the collector look no more at what lives on: modules by the thousand, and their code."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module", autouse=True)
def _kept_worker() -> None:
    """Keep what checks run in for the next test, once something imported the checks."""
    if "opsmith.checks.isolation" in sys.modules:
        from opsmith.checks.workers.worker_pool import keep_workers

        keep_workers()


@dataclass(frozen=True)
class Outcome:
    code: int
    stdout: str
    stderr: str


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    """Chromium, for the tests that open a page."""
    sync = pytest.importorskip(
        "playwright.sync_api", reason="no playwright: `make browser` installs it, and Chromium"
    )
    program = shutil.which("chromium") or shutil.which("google-chrome")
    if program is None:
        pytest.skip("no Chromium on this machine: `make browser` installs it")
    with sync.sync_playwright() as driver:
        # A container has no user namespaces for Chromium's own sandbox; the pages are ours.
        started = driver.chromium.launch(executable_path=program, args=["--no-sandbox"])
        yield started
        started.close()


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch) -> Callable[..., Outcome]:
    """Run one `opsmith` command line in this process."""
    from typer.testing import CliRunner

    from opsmith.cli.app import app

    monkeypatch.setenv("TERMINAL_WIDTH", "100")

    def run(*arguments: object) -> Outcome:
        with mock.patch.dict(os.environ):  # `opsmith check` sets variables for its own process
            result = CliRunner().invoke(app, [str(argument) for argument in arguments])
        if result.exception is not None and not isinstance(result.exception, SystemExit):
            raise result.exception
        return Outcome(result.exit_code, result.stdout, result.stderr)

    return run


@pytest.fixture
def pass_time(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Let seconds pass on the clock of this process that nobody waits for.

    Beside hundreds of these, what a busy machine adds does not count.
    """
    clock, passed = time.monotonic, 0.0

    def let(seconds: float) -> None:
        nonlocal passed
        passed += seconds

    monkeypatch.setattr(time, "monotonic", lambda: clock() + passed)
    return let


@pytest.fixture
def brief_shrinking(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look for a smaller failing case for a moment only: each try may be an export."""
    from opsmith.checks.cases import search

    monkeypatch.setattr(search, "SHRINK_SECONDS", 0.5)


@pytest.fixture
def no_shrinking(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look for no smaller failing case, where it is asked only whether one is found."""
    from opsmith.checks.cases import search

    monkeypatch.setattr(search, "SHRINK_SECONDS", 0.0)


@pytest.fixture
def tried(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The descriptions of all cases that a check enters in this process, as it goes on."""
    from opsmith.checks.trial.case_runner import CaseRunner

    found: list[str] = []
    announce = CaseRunner.announce_case

    def note(self: Any, case: Any, doing: str = "") -> None:
        found.append(doing)
        announce(self, case, doing)

    monkeypatch.setattr(CaseRunner, "announce_case", note)
    return found


@pytest.fixture
def cluster() -> Iterator[Any]:
    """Have Ray make a cluster of three nodes; its `others` may be killed."""
    if not os.environ.get("OPSMITH_REQUIRE_RAY"):
        pytest.importorskip("ray", reason="no Ray here; make ray installs it and runs these")
    from ray.cluster_utils import Cluster

    made = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    made.others = [made.add_node(num_cpus=1) for _ in range(2)]
    yield made
    made.shutdown()
