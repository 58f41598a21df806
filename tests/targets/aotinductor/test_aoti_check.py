"""The rows that `opsmith check` has for packages."""

from __future__ import annotations

import aoti_operators as ops
import pytest

from opsmith import checks

SELECT = ["aotinductor", "aotinductor-cpp"]


@pytest.mark.slow
def test_a_right_operator_passes_from_python_and_from_cpp(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("OPSMITH_CHECK_CPP", "1")
    report = checks.run(ops.accumulate, select=SELECT, isolate=False)
    rows = {row.check: row for row in report.rows if row.check in SELECT}
    assert {name: row.status for name, row in rows.items()} == dict.fromkeys(SELECT, "passed")
    assert all(row.cases for row in rows.values())


def test_kernels_that_a_package_cannot_carry_are_left_out_and_said_so() -> None:
    report = checks.run(ops.python_only, select=SELECT, isolate=False)
    messages = {row.check: row.message for row in report.rows if row.check in SELECT}
    assert messages == {
        "aotinductor": "a package runs without Python, the kernel not",
        "aotinductor-cpp": "asked for with OPSMITH_CHECK_CPP=1",
    }
