"""What `opsmith check` says of a kernel that the harness finds fault with."""

from pathlib import Path

import pytest
from alone import row_alone
from jaxtyping import Float32
from sound_native import pair_sums
from torch import Tensor

import opsmith
from opsmith import checks

pytestmark = pytest.mark.slow(cases=2)

SOURCE = Path(__file__).with_name("faults.cpp")


@opsmith.op("harness_faults::doubled")
def doubled(x: Float32[Tensor, "N"], fault: str = "") -> Float32[Tensor, "N"]:
    return x * 2


doubled.register_kernel("cpu", source=SOURCE)
FAULT = ""


@doubled.register_cases(only=True)
def _cases(dtype, seed):
    import torch

    generator = torch.Generator().manual_seed(seed)
    for size in (1, 10, 40):
        yield {"x": torch.rand(size, generator=generator), "fault": FAULT}


def rows(fault, monkeypatch, every=("bounds", "schedules", "side-effects")):
    monkeypatch.setitem(globals(), "FAULT", fault)
    # In this process: another one would not know which fault was asked for.
    # Each by itself, as a failure of one leaves the others nothing to say.
    reports = [checks.run(doubled, select=[check], isolate=False) for check in every]
    return {row.check: row for report in reports for row in report.rows}


@pytest.mark.long  # test_a_fault_is_found_by_the_row_..., from three samples
@pytest.mark.parametrize("seed", range(3))
def test_one_sample_is_enough_to_learn_that_a_kernel_splits_its_work(seed):
    report = checks.run(pair_sums, select=["schedules"], isolate=False, examples=1, seed=seed)
    (row,) = (row for row in report.rows if row.check == "schedules")
    assert row.status == "passed"
    assert not any("parallel_for" in note for note in row.notes)


def test_a_right_kernel_passes(monkeypatch):
    assert {row.status for row in rows("", monkeypatch).values()} == {"passed"}


@pytest.mark.parametrize(
    ("fault", "check", "words", "code"),
    [
        (
            "read past the end",
            "bounds",
            "read 1 element past the end of argument 'x' (1 element)",
            "OPS-MEMORY-BOUNDS",
        ),
        (
            "wrong, and past the end of the longest",
            "bounds",
            "called alone: the kernel wrote 1 element past the end of the result (40 elements)",
            "OPS-MEMORY-BOUNDS",
        ),
        ("unwritten last", "bounds", "the result[0] was never written", "OPS-RESULT-UNWRITTEN"),
        (
            "late write",
            "bounds",
            "called alone: the kernel works on: it wrote results after it had returned",
            "OPS-RESULT-REUSED",
        ),
        (
            "sum over pieces",
            "schedules",
            "with the pieces of parallel_for in another order: the result[",
            "OPS-SCHEDULES-SPLIT",
        ),
        (
            "leak",
            "side-effects",
            "called alone: the kernel allocates 104 bytes in every call that",
            "OPS-MEMORY-LEAK",
        ),
        (
            "one buffer for all calls",
            "side-effects",
            "called by two threads at once: the result[",
            "OPS-STATE-THREADS",
        ),
    ],
)
def test_a_fault_is_found_by_the_row_that_is_named_after_it(fault, check, words, code, monkeypatch):
    # Only this row: a late write into memory that another has given back would end this process.
    found = rows(fault, monkeypatch, [check])[check]
    assert found.status == "failed"
    assert found.message.startswith(words)
    assert found.code == code
    assert found.case.startswith("x: float32 (")


@pytest.mark.parametrize("fault", ["wrong in any order", "wrong without pieces"])
def test_a_kernel_that_is_wrong_in_any_order_is_not_blamed_on_pieces_or_threads(fault, monkeypatch):
    found = rows(fault, monkeypatch)
    for check in ("schedules", "side-effects"):
        assert found[check].message.startswith("called alone: the result[")
        assert found[check].code == "OPS-VALUE-WRONG"


def column_sums(x: Float32[Tensor, "N C"]) -> Float32[Tensor, "C"]:
    return x.sum(0)


def together(name, *flags):
    """Declare sums that the pieces of a loop over the rows add to."""
    operator = opsmith.op(f"faults::{name}")(column_sums)
    source = Path(__file__).parents[2] / "faults" / "native" / "columns_together.cpp"
    operator.register_kernel("cpu", source=source, flags=[f"-DNAME={name}", *flags])
    return operator


plain_sums = together("plain_sums", "-DWRONG")
atomic_sums = together("atomic_sums")


@pytest.mark.parametrize("seed", range(5))
def test_a_sum_that_pieces_share_is_found_with_every_seed_and_an_atomic_one_is_not(seed):
    wrong, right = (
        row_alone(operator, "schedules", examples=8, seed=seed)
        for operator in (plain_sums, atomic_sums)
    )
    assert wrong.code == "OPS-DETERMINISM-THREADS"
    assert wrong.message.startswith("with the pieces of parallel_for on 3 threads: the result[")
    assert wrong.message.endswith("--check sanitize-thread names the lines.")
    assert right.status == "passed", right.message


ROLLED = """
#include "rolled.h"
void rolled(const opsmith::Context&, const harness_rows::rolled_args& a) {
  for (int64_t i = 0; i < a.N; ++i) a.out[(i + a.shift + a.N) % a.N] = a.x[i];
}
OPSMITH_KERNEL(harness_rows, rolled, cpu)
"""


def test_a_number_that_leads_beside_memory_is_told_with_its_line(tmp_path):
    @opsmith.op("harness_rows::rolled")
    def rolled(x: Float32[Tensor, "N"], shift: int = 1) -> Float32[Tensor, "N"]:
        return x.roll(shift)

    (tmp_path / "rolled.cpp").write_text(ROLLED)
    rolled.register_kernel("cpu", source=tmp_path / "rolled.cpp")
    row = row_alone(rolled, "bounds")
    assert (row.status, row.code) == ("failed", "OPS-MEMORY-BOUNDS")
    assert "before the start of the result" in row.message and "shift=-100" in row.case
    assert "rolled.cpp:4" in row.message
