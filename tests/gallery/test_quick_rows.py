"""The operators that came from users pass the quick rows; `make gallery` runs all of them."""

import importlib

import pytest

from opsmith import checks
from opsmith.checks.protocol import QUICK
from opsmith.operators import Operator

NAMES = (
    "add_rms_norm",
    "flash_attention",
    "grouped_linear",
    "int4_linear",
    "linear_cross_entropy",
    "moe_gating",
    "nms",
    "paged_attention",
    "rms_norm",
    "rope",
    "segment_reduce",
    "selective_scan",
    "swiglu",
    "voxelize",
)
#: Three of the quick checks compile each kernel again.
ROWS = [row for row in QUICK if row not in ("exact", "bounds", "schedules")]


@pytest.mark.slow(cases=2)
@pytest.mark.parametrize("name", NAMES)
def test_an_operator_passes_the_quick_rows(name: str) -> None:
    module = importlib.import_module(f"gallery.{name}.{name}")
    operators = [value for value in vars(module).values() if isinstance(value, Operator)]
    report = checks.run(operators, select=ROWS, examples=6, isolate=False)
    assert report.ok, report.explain()
