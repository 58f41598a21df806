import pytest
from native_faults import flat_reader, last_row

from opsmith import checks


@pytest.fixture(scope="module")
def report():
    return checks.run([last_row, flat_reader], select=["reference", "layouts", "aliasing"])


def rows(report, operator):
    return {row.check: row for row in report.rows if row.operator == operator.name}


def test_a_row_left_out_is_found(report):
    found = rows(report, last_row)["reference"]
    assert found.message.startswith("the result[0, 0] is 0, expected ")
    assert "smallest case: x: float32 (1, 1) [[" in found.explain()
    assert "kernel: " in found.explain()
    assert "native/last_row.cpp" in found.explain()


def test_a_kernel_that_crashes_for_one_size_is_found(report):
    found = rows(report, flat_reader)["reference"]
    assert found.message.startswith("crashed with signal 11 (SIGSEGV)")
    assert found.case.startswith("x: float32 (4, 1) [[")


def test_a_kernel_that_does_not_read_its_strides_is_found(report):
    found = rows(report, flat_reader)["layouts"]
    assert found.status == "failed"
    assert " transposed" in found.case


def test_the_dtypes_that_a_kernel_lacks_are_said(report):
    notes = rows(report, flat_reader)["build"].notes
    assert notes == ("not compiled for float16, bfloat16, float64",)
