"""Reports made of rows as real runs give them, without running anything."""

from dataclasses import replace

from opsmith.checks.protocol import all_checks
from opsmith.checks.report.rows import Row, Sample
from opsmith.checks.run_report import Report

SAMPLES = tuple(
    Sample(cohort, dtype, 2**power, 3, error)
    for cohort, error in (("normal", 0.3), ("NaN", None), ("boundary sizes", 0.0))
    for dtype in ("float32", "bfloat16")
    for power in (1, 4, 7)
)
PASSED = Row("", "cpu", "", "passed", cases=18, error=0.3, seconds=0.4, samples=SAMPLES)
FAILED = replace(
    PASSED,
    status="failed",
    error=float("inf"),
    message="the result[0, 1] is </script><b>nan</b>, expected -0.586858 ± 4.5e-07 (float32)",
    case="x: float32 (2, 2) transposed [[1.541, -0.2934], [-2.179, 0.5684]]",
    command="opsmith check scale.py --check layouts --seed 0",
    where="/home/me/my_ops/scale.cpp",
    snippet="import torch\nx = torch.eye(2)",
    code="OPS-LAYOUT-STRIDE",
    samples=(*SAMPLES, Sample("transposed", "float32", 4, 1, float("inf"))),
)
APART = Row("", "cpu", "", "not applicable", message="claims no parallel_dims")
#: Which checks of which operator fail, and with what code.
FAULTS = {
    ("many::operator_7", "layouts"): "OPS-LAYOUT-STRIDE",
    ("many::operator_7", "compile"): "OPS-COMPILE-WRONG",
    ("many::operator_31", "gradient"): "OPS-GRADIENT-WRONG",
}


def report_of(operators: int) -> Report:
    """A report of so many operators with every check that runs always."""
    names = [check.name for check in all_checks() if not check.flag]
    rows = []
    for number in range(operators):
        operator = f"many::operator_{number}"
        for check in names:
            row = APART if check == "parallel-dims" else PASSED
            code = FAULTS.get((operator, check))
            row = replace(FAILED, code=code) if code else row
            rows.append(replace(row, operator=operator, check=check))
    return Report(rows, seed=3)
