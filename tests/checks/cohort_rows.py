"""Declare operators for tests of cohorts, and run the row `reference` on them."""

import opsmith
from opsmith import checks


def run(operator, seed=0):
    select = ["reference"]
    report = checks.run(operator, select=select, seed=seed, isolate=False, seconds=300)
    return next(row for row in report.rows if row.check == "reference")


def declared(reference, kernel, **options):
    operator = opsmith.op(f"cohorts::{reference.__name__}_{id(kernel)}", **options)(reference)
    operator.register_kernel("cpu", kernel)
    return operator
