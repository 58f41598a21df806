"""The rows that `opsmith check` has for packages."""

from __future__ import annotations

import aoti_operators as ops
import pytest

from opsmith import checks
from opsmith.checks.protocol import UnknownCheckError, selected

SELECT = ["aotinductor", "aotinductor-cpp"]


@pytest.mark.slow
def test_a_right_operator_passes_from_python_and_from_cpp() -> None:
    report = checks.run(ops.accumulate, select=SELECT, isolate=False)
    rows = {row.check: row for row in report.rows if row.check in SELECT}
    assert {name: row.status for name, row in rows.items()} == dict.fromkeys(SELECT, "passed")
    assert all(row.cases for row in rows.values())


def test_kernels_that_a_package_cannot_carry_are_left_out_and_said_so() -> None:
    report = checks.run(ops.python_only, select=SELECT, isolate=False)
    messages = {row.check: row.message for row in report.rows if row.check in SELECT}
    assert messages == {
        "aotinductor": "a package runs without Python, and the kernel is Python",
        "aotinductor-cpp": "a package runs without Python, and the kernel is Python",
    }


def test_the_program_is_run_only_where_it_is_asked_for() -> None:
    def names(*select: str, flags: tuple[str, ...] = ()) -> set[str]:
        return {one.name for one in selected(select, flags)}

    assert "aotinductor" in names() and "aotinductor-cpp" not in names()
    assert names(flags=("cpp",)) == names() | {"aotinductor-cpp"}
    assert names("reference", flags=("cpp",)) == {"reference", "aotinductor-cpp"}
    assert names("aotinductor-cpp") == {"aotinductor-cpp"}
    with pytest.raises(UnknownCheckError, match="no check has the flag 'cxx'"):
        names(flags=("cxx",))
