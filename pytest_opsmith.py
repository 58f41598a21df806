"""The pytest plugin: collects `opsmith.testing.suite`, one test for each check of each kernel.

It is outside the package, since pytest imports it in every project of an environment with opsmith.
So importing it must be cheap, and must not import PyTorch.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from opsmith.testing import OneTest, Suite

#: The property of a test report that names the check and its operator; it passes between processes.
_PROPERTY = "opsmith-check"
_MARKS = (
    "opsmith: a check of an operator, from opsmith.testing.suite",
    "slow: takes long; of opsmith's checks those that compile",
    "device(name): the device type of the kernel that a check of opsmith's runs",
)


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options that decide how thoroughly suites check."""
    group = parser.getgroup("opsmith", "opsmith's checks of operators")
    group.addoption(
        "--opsmith-seed", type=int, metavar="N", help="decides every sampled case; 0 by default"
    )
    group.addoption(
        "--opsmith-examples", type=int, metavar="N", help="how many cases a check samples"
    )
    group.addoption(
        "--opsmith-allow-cut-short",
        action="store_true",
        default=None,
        help="take a check for passed that ran out of time before it had tried enough",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the marks."""
    for mark in _MARKS:
        config.addinivalue_line("markers", mark)
    config.pluginmanager.register(_Unchecked(), "opsmith-unchecked")


@pytest.hookimpl(tryfirst=True)
def pytest_pycollect_makeitem(
    collector: pytest.Module | pytest.Class, name: str, obj: object
) -> pytest.Collector | None:
    """Collect a suite that a test module or class assigns to a test's name."""
    # Look at the type, so that attribute access on unusual objects runs none of their code.
    if not getattr(type(obj), "_is_opsmith_suite", False):
        return None
    prefixes = collector.config.getini("python_functions")
    if not any(name.startswith(prefix.rstrip("*")) for prefix in prefixes):
        return None
    return SuiteCollector.from_parent(collector, name=name, suite=obj)


class SuiteCollector(pytest.Collector):
    """The tests of one suite."""

    def __init__(self, *, suite: Suite, **options: Any) -> None:
        super().__init__(**options)
        self._suite = suite

    def collect(self) -> Iterator[CheckItem]:
        """Yield an item for each check of each kernel of each operator."""
        option = self.config.getoption
        given = {
            "seed": option("--opsmith-seed"),
            "examples": option("--opsmith-examples"),
            "allow_cut_short": option("--opsmith-allow-cut-short"),
        }
        chosen = {name: value for name, value in given.items() if value is not None}
        for test in self._suite.tests(**chosen):
            yield CheckItem.from_parent(self, name=test.id, test=test)


class CheckItem(pytest.Item):
    """A check of a kernel."""

    def __init__(self, *, test: OneTest, **options: Any) -> None:
        super().__init__(**options)
        self._test = test
        self.add_marker("opsmith")
        self.add_marker(pytest.mark.device(name=test.device))
        if test.slow:
            self.add_marker("slow")

    def runtest(self) -> None:
        """Run the check; skip it if it does not apply to the kernel."""
        row = self._test.run()
        self.user_properties.append((_PROPERTY, f"{row.operator} {row.kernel} {row.check}"))
        if row.status in ("not applicable", "not run"):
            pytest.skip(row.message)
        self.user_properties += [("cases", row.cases), ("error", row.error)]
        allowed = self._test.options.get("allow_cut_short", False)
        if row.status == "failed" or (row.status == "cut short" and not allowed):
            raise CheckFailedError(row.explain())

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], style: Any = None) -> Any:
        """Show the check's own message, without a traceback into opsmith."""
        if isinstance(excinfo.value, CheckFailedError):
            return str(excinfo.value)
        return super().repr_failure(excinfo)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Return the place where the operator is declared."""
        file, line = self._test.where
        name = f"{self.parent.name}::{self.name}" if self.parent is not None else self.name
        return Path(file) if file else self.path, line, name


class CheckFailedError(Exception):
    """A check failed, or was cut short."""


class _Unchecked:
    """Ends a test run with pytest's exit code for "no tests ran" if no kernel was looked at.

    A check that does not apply is a skipped test; if all checks of an operator's kernels are
    skipped, nothing else reports it.
    """

    def __init__(self) -> None:
        self._ran: list[tuple[list[str], str | None]] = []

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note whether a check ran; with pytest-xdist, only the reporting process calls this."""
        for name, value in report.user_properties if report.when == "call" else ():
            if name == _PROPERTY:
                skipped = report.longrepr if isinstance(report.longrepr, tuple) else ("", 0, "")
                why = skipped[2].removeprefix("Skipped: ")
                self._ran.append((str(value).split(), why if report.skipped else None))

    def _unchecked(self) -> dict[str, str]:
        if not self._ran:
            return {}
        from opsmith.checks.report.rows import Results, Row

        rows = [
            Row(name, kernel, check, "passed" if why is None else "not run", message=why or "")
            for (name, kernel, check), why in self._ran
        ]
        return Results(rows).unchecked

    def pytest_sessionfinish(self, session: pytest.Session, exitstatus: int) -> None:
        """Set the exit code."""
        worker = hasattr(session.config, "workerinput")  # pytest-xdist's
        if self._unchecked() and exitstatus == pytest.ExitCode.OK and not worker:
            session.exitstatus = pytest.ExitCode.NO_TESTS_COLLECTED

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Print the operators that were not checked."""
        for operator, why in self._unchecked().items():
            terminalreporter.write_line(f"{operator}: {why}", yellow=True)
