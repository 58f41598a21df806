"""The rows that `opsmith check` has for packages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import aoti_operators as ops
import pytest
from jaxtyping import Float32, UInt16
from torch import Tensor
from torch.export import ExportedProgram

import opsmith
from opsmith import checks
from opsmith.checks.protocol import selected
from opsmith.errors import UnknownCheckError
from opsmith.targets import get_target
from opsmith.targets.aotinductor import compile as compiling

SELECT = ["aotinductor", "aotinductor-cpp"]


@pytest.mark.long
def test_a_right_operator_passes_from_python_and_from_cpp() -> None:
    report = checks.run(ops.accumulate, select=SELECT, isolate=False)
    rows = {row.check: row for row in report.rows if row.check in SELECT}
    assert {name: row.status for name, row in rows.items()} == dict.fromkeys(SELECT, "passed")
    assert all(row.cases for row in rows.values())


@pytest.mark.long
@pytest.mark.usefixtures("brief_shrinking")
def test_a_constant_in_place_of_an_argument_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    compile_model = compiling.compile_model
    overload = ops.cumsum.overload
    counts: list[int] = []

    def planted(program: ExportedProgram, *rest: Any) -> None:
        calls = [node for node in program.graph.nodes if node.target is overload]
        counts.append(len(calls))
        # The first is the call whose sizes change, which finds such a constant by itself at times.
        for node in calls[1:]:
            # The default, which an export of one call alone could well have been made with.
            node.args, node.kwargs = (node.args[0], ""), {}
        compile_model(program, *rest)

    monkeypatch.setattr(compiling, "compile_model", planted)
    report = checks.run(ops.cumsum, select=SELECT, isolate=False)
    rows = {row.check: row for row in report.rows if row.check in SELECT}
    assert {name: row.status for name, row in rows.items()} == dict.fromkeys(SELECT, "failed")
    assert counts[0] > 1
    for name, what in (("aotinductor", "AOTInductor package"), ("aotinductor-cpp", "C++ program")):
        assert rows[name].message.startswith(f"the {what}, run with x (")
        assert ", text='" in rows[name].message.split(": the result[")[0]
        assert "text=''" not in rows[name].case


def test_kernels_that_a_package_cannot_carry_are_left_out_and_said_so() -> None:
    report = checks.run(ops.python_only, select=SELECT, isolate=False)
    messages = {row.check: row.message for row in report.rows if row.check in SELECT}
    assert messages == {
        "aotinductor": "a package runs without Python, and the kernel is Python",
        "aotinductor-cpp": "a package runs without Python, and the kernel is Python",
    }


def test_dtypes_that_the_program_cannot_read_from_a_file_are_said(tmp_path: Path) -> None:
    @opsmith.op("aoti_check::widen")
    def widen(x: UInt16[Tensor, "N"]) -> Float32[Tensor, "N"]:
        return x.float()

    (tmp_path / "widen.cpp").touch()
    widen.register_kernel("cpu", source=tmp_path / "widen.cpp")
    obstacles = {
        proof.name: proof.obstacle(widen, widen.kernels["cpu"])
        for proof in get_target("aotinductor").proofs()
        if proof.name in SELECT
    }
    assert obstacles == {
        "aotinductor": None,
        "aotinductor-cpp": "the C++ program reads files that torch.save wrote, and PyTorch reads "
        "uint16 from them in Python only",
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
