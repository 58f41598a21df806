"""State what sampling owes each row, and compare it with what is drawn and what a report names."""

from collections import defaultdict
from pathlib import Path

import pytest
import torch
from cohort_rows import declared, run
from jaxtyping import Float
from torch import Tensor

from opsmith import checks
from opsmith.checks.cases.cohorts import OWED as OWED_BY_ALL
from opsmith.checks.cases.layouts import LAYOUTS, possible
from opsmith.checks.catalogue import values
from opsmith.signature import bind
from opsmith.sources.importing import import_all

REPOSITORY = Path(__file__).parents[3]
#: The gallery and operators of today, by the files that declare them.
FILES = sorted(
    path.relative_to(REPOSITORY).as_posix()
    for path in [
        *REPOSITORY.glob("examples/todays_operators/*.py"),
        *(one / f"{one.name}.py" for one in REPOSITORY.glob("gallery/*/")),
    ]
    if path.is_file()
)


def sizes(case):
    return [size for _, tensor in case.tensors() for size in tensor.shape]


def named(case):
    dims = bind(case.signature, case.described()).dims.values()
    return [size for dim in dims for size in (dim if isinstance(dim, tuple) else (dim,))]


def reaches(least):
    return lambda case: max(sizes(case), default=0) >= least


def holds(test):
    """Some tensor of floats, or of parts of complex numbers, has such an element."""

    def in_some(case):
        floats = [t for _, t in case.tensors() if t.is_floating_point() or t.is_complex()]
        floats = [torch.view_as_real(t) if t.is_complex() else t for t in floats]
        return any(bool(test(t.double(), torch.finfo(t.dtype)).any()) for t in floats)

    return in_some


def ordered(way):
    """Some tensor with several values goes up, or down, along some dimension."""

    def along(tensor, dim):
        step = way * tensor.double().diff(dim=dim)
        return bool((step >= 0).all()) and bool((step > 0).any())

    return lambda case: any(
        along(tensor, dim)
        for _, tensor in case.tensors()
        if not tensor.is_complex()
        for dim in range(tensor.dim())
    )


def has_equal(count):
    """Some tensor has several elements and at most so many different values, by their number."""
    return lambda case: any(
        tensor.numel() > 1 and tensor.reshape(-1).unique().numel() <= count(tensor.numel())
        for _, tensor in case.tensors()
        if not tensor.is_complex()
    )


def laid_out(layout):
    return lambda case: any(
        possible(tensor, layout)
        for name, tensor in case.tensors()
        if case.layouts.get(name.partition("[")[0]) == layout
    )


#: By row and cohort: what at least one case of the cohort must be. A cohort that is not here owes
#: a case, whatever it is.
OWED = {
    "reference": {
        "boundary sizes": reaches(31),
        "odd sizes": lambda case: all(size % 2 for size in named(case)),
        "long rows": reaches(257),
        "long sums": reaches(1025),
        "many elements": lambda case: max(t.numel() for _, t in case.tensors()) > 65536,
        "many dimensions": lambda case: max(t.dim() for _, t in case.tensors()) > 3,
        "NaN": holds(lambda t, _: t.isnan()),
        "infinity": holds(lambda t, _: t.isinf()),
        "zeros": holds(lambda t, _: t == 0),
        "signed zeros": holds(lambda t, _: (t == 0) & t.signbit()),
        "large": holds(lambda t, _: t.abs() > 50),
        "huge": holds(lambda t, kind: t.abs() > kind.max**0.5),
        "tiny": holds(lambda t, kind: (t != 0) & (t.abs() < kind.tiny**0.4)),
        "denormal": holds(lambda t, kind: (t != 0) & (t.abs() < kind.tiny)),
        "equal": has_equal(lambda count: 1),
        "ties": has_equal(lambda count: count - 1),
        "sorted": ordered(1),
        "reversed": ordered(-1),
        "same tensor": lambda case: case.same and not case.shift,
        "written and read": lambda case: case.same,
    },
    "layouts": {layout: laid_out(layout) for layout in LAYOUTS[1:]},
    "empty-sizes": {"every size 0 or 1": lambda case: set(sizes(case)) <= {0, 1}},
}


def drawn(operators, monkeypatch):
    """Draw what the rows draw, and call no kernel: cases by operator, row and cohort."""
    found = defaultdict(list)

    def note(trial, case, how=""):
        trial.accept(case)
        cohort = "registered" if case.origin else trial.counts.cohort
        found[trial.operator.name, trial.name, cohort].append(case)

    monkeypatch.setattr(values, "_agrees", note)
    report = checks.run(operators, select=list(OWED), isolate=False, seconds=600)
    assert [row for row in report.rows if row.status == "failed"] == []
    return found, report


def lacks(found, report):
    """Return what is owed, and neither drawn nor named by the report."""
    for row in report.rows:
        told = " ".join(note for note in row.notes if note.startswith("no case of"))
        cohorts = {cohort for *of, cohort in found if of == [row.operator, row.check]}
        for cohort in cohorts & set(OWED.get(row.check, ())):
            cases = found[row.operator, row.check, cohort]
            if not any(OWED[row.check][cohort](case) for case in cases):
                yield f"{row.operator}, {row.check}: no case of {cohort!r} is what it says"
        if row.check == "reference" and row.status == "passed":
            for cohort in OWED_BY_ALL:
                if cohort not in cohorts and cohort not in told and "registered" not in cohorts:
                    yield f"{row.operator}: {cohort!r} is neither drawn nor told"


@pytest.mark.slow(cases=3)
@pytest.mark.parametrize("file", FILES)
def test_every_cohort_has_a_case_that_is_what_its_name_says_or_is_in_the_report(file, monkeypatch):
    monkeypatch.syspath_prepend(str(REPOSITORY))
    operators = [one for one in import_all([str(REPOSITORY / file)]) if one.kernels]
    assert list(lacks(*drawn(operators, monkeypatch))) == []


def _lacking(row):
    assert row.status == "passed", row.message
    return next((note for note in row.notes if note.startswith("no case of")), "")


def test_a_cohort_that_the_declaration_rules_out_is_in_the_report():
    def small(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
        return x * 2

    row = run(declared(small, lambda x: x * 2, where=("N < 8",)))
    assert _lacking(row) == (
        "no case of boundary sizes, odd sizes, long sums, long rows, many elements: the "
        "declaration's sizes and the kernel's dtypes allow none"
    )


def test_a_cohort_that_the_reference_refuses_is_in_the_report():
    def finite(x: Float[Tensor, "N C"]) -> Float[Tensor, "N C"]:
        if x.isnan().any():
            raise ValueError("no NaN, please")
        return x * 2

    assert _lacking(run(declared(finite, lambda x: x * 2))) == (
        "no case of NaN: the reference refused all"
    )


def test_an_operator_without_limits_lacks_no_cohort():
    def free(x: Float[Tensor, "N C"]) -> Float[Tensor, "N C"]:
        return x * 2

    row = run(declared(free, lambda x: x * 2))
    assert _lacking(row) == ""
