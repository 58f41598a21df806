import re

import faults_native  # noqa: F401  plants them
import pytest
from jaxtyping import Float
from pairs import planted
from torch import Tensor

import opsmith
from opsmith import checks

pytestmark = pytest.mark.slow

last_row, flat_reader, by_pieces = (
    planted(name).wrong for name in ("last row", "flat reader", "by pieces")
)


@pytest.fixture(scope="module")
def rows():
    """The rows of a kernel that reads its argument as if it were contiguous, by their checks."""
    # Run together, the second would not be run because of the first.
    reports = [checks.run(flat_reader, select=[name]) for name in ("reference", "layouts")]
    return {row.check: row for report in reports for row in report.rows}


@pytest.mark.long  # a library of its own; tests/faults/test_planted.py finds wrong values
def test_a_row_left_out_is_found():
    _, found = checks.run(last_row, select=["reference"]).rows
    assert found.message.startswith("the result[0, 0] is 0, expected ")
    assert "smallest case: x: float32 (1, 1) [[" in found.explain()
    assert "kernel: " in found.explain()
    assert "native/last_row.cpp" in found.explain()


def test_a_kernel_that_crashes_for_one_size_is_found(rows):
    found = rows["reference"]
    assert found.message.startswith("crashed with signal 11 (SIGSEGV)")
    assert found.case.startswith("x: float32 (4, 1) [[")


def test_a_kernel_that_does_not_read_its_strides_is_found(rows):
    found = rows["layouts"]
    assert found.status == "failed"
    assert " transposed" in found.case


def test_a_compiled_kernel_whose_bits_depend_on_the_threads_is_found():
    _, found = checks.run(by_pieces, select=["determinism"]).rows
    assert found.message.startswith("1 thread and 2 threads gave different bits: the result[")
    assert re.search(r" is \S+ and \S+, \S+ apart \(float32\); \d+ of \d+ ", found.message)
    assert "both are within the tolerance. If that is meant, tag the operator" in found.message


def test_the_dtypes_that_a_kernel_lacks_are_said(rows):
    notes = rows["build"].notes
    assert notes == ("not compiled for float16, bfloat16, float64",)


def test_where_the_build_fails_nothing_else_is_run(tmp_path):
    @opsmith.op("faults::unbuildable")
    def unbuildable(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
        return x * 2

    (tmp_path / "unbuildable.cpp").write_text("this is no C++\n")
    unbuildable.register_kernel("cpu", source=tmp_path / "unbuildable.cpp")
    build, reference = checks.run(unbuildable, select=["reference"]).rows
    assert build.status == "failed"
    assert f"{tmp_path}/unbuildable.cpp:1:1: error" in build.message
    assert reference.status == "not run"
    assert reference.message == "not built"
