"""State what sampling owes each row, and compare it with what is drawn and what a report names."""

from pathlib import Path
from typing import Annotated

import pytest
import torch
from cohort_rows import declared, run
from drawn_cases import drawn, rows
from jaxtyping import Float, Float32, Int32
from torch import Tensor

import opsmith
from opsmith import Index
from opsmith.checks.cases import sampling
from opsmith.checks.cases.cohorts import OWED as OWED_BY_ALL
from opsmith.checks.cases.layouts import LAYOUTS, possible
from opsmith.signature import bind
from opsmith.signature.solving.fitting import Fitting
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
    """The sizes that no condition and no computed size restricts."""
    fitting = Fitting(case.signature)
    dims = bind(case.signature, case.described()).dims
    free = [dim for name, dim in dims.items() if not fitting.reads(name)]
    return [size for dim in free for size in (dim if isinstance(dim, tuple) else (dim,))]


def reaches(least):
    return lambda case: max(sizes(case), default=0) >= least


def dimensions(case):
    return max((tensor.dim() for _, tensor in case.tensors()), default=0)


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
        "halves": holds(lambda t, _: t.frac().abs() == 0.5),
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
    "empty-sizes": {"every size 0 or 1": lambda case: set(named(case)) <= {0, 1}},
}


def between(least, most):
    """Some size lies between two."""
    return lambda case: any(least <= size <= most for size in sizes(case))


def uneven(case):
    """Two sizes differ that a compiler may not take for constants, where there are two."""
    return len({size for size in sizes(case) if size > 1}) > 1 or dimensions(case) < 2


def is_cut(case):
    """Some size is odd, so that ranks and pieces get parts of unequal size."""
    return any(size > 2 and size % 2 for size in sizes(case))


ZERO, ONE, SOME, MANY = between(0, 0), between(1, 1), between(2, 1000), between(31, 1000)
#: By row: what its cases must be, whatever their cohort: one dtype or all that the kernel has, and
#: for each test one case at least, where the declaration allows it.
BY_ROW = {
    "dispatch": ("all", SOME),
    "bounds": ("all", MANY, ZERO, ONE),
    "schedules": ("all", MANY, ONE),
    "exact": ("one", between(257, 1000)),
    "exact-gradient": ("one", between(257, 1000)),
    "exact-cuda-on-cpu": ("one", between(257, 1000)),
    "exact-ascendc-on-cpu": ("one", between(257, 1000)),
    "cuda-on-cpu": ("all", MANY, ZERO, ONE),
    "ascendc-on-cpu": ("npu", MANY, ZERO, ONE),
    "mutation": ("all", MANY),
    "aliasing": ("all", MANY, ONE),
    "out": ("all", MANY, ONE),
    "layouts": ("all", MANY),
    "empty-sizes": ("one", ZERO, ONE),
    "fake": ("all", MANY, ZERO, ONE, uneven),
    "gradient": ("differentiable", MANY, ONE),
    "gradcheck": ("double", between(2, 3), ONE),
    "double-backward": ("one", between(3, 1000)),
    "nested-gradients": ("one", between(3, 1000)),
    "determinism": ("all", between(257, 5000), ONE),
    "randomness": ("one", between(64, 1000)),
    "side-effects": ("one", SOME, uneven),
    "statefulness": ("one", SOME),
    "parallel-dims": ("one", between(4, 1000), is_cut),
    "batch-invariance": ("one", between(257, 1000), is_cut),
    "batch-invariance-cuda-on-cpu": ("one", MANY, is_cut),
    "vmap": ("one", between(2, 4)),
    "sharding": ("one", between(4, 1000), is_cut),
    "validation": ("one", uneven),
    "opcheck": ("one", between(2, 5)),
    "compile": ("one", between(2, 9), uneven),
    "export": ("one", between(2, 9), uneven),
    "aotinductor": ("one", between(2, 9), uneven),
    "jax": ("runtime", MANY, ONE),
    "jax-vmap": ("one", SOME),
    "jax-gradient": ("one", SOME),
    "onnxruntime": ("runtime", MANY, ONE),
    "python": ("runtime", MANY, ONE),
    "tvm_ffi": ("runtime", MANY, ONE),
    "tvm_ffi_torch": ("runtime", MANY, ONE),
    "tvm_ffi_jax": ("runtime", MANY, ONE),
    **{
        f"onnx-{form}{suffix}": ("one", between(2, 9), uneven)
        for form in ("standard", "library", "inline")
        for suffix in ("", "-torchscript")
    },
}
#: By row: how many layouts there must be among its cases, where the declaration allows as many.
LAYOUTS_OF = {"mutation": 2, "layouts": 6, "fake": 4}


def of_row(found, operator, row):
    """The cases of a row, in any cohort."""
    return [case for (*of, _), cases in found.items() if of == [operator, row] for case in cases]


def owed_dtypes(which, known):
    """Return the dtypes in which a row owes cases: some of those of the reference's cases."""
    plain = {"float32", "float64", "int32", "int64"}
    return {
        "all": known,
        "differentiable": {one for one in known if one and "float" in one},
        "double": known & {"float64"},
        "npu": known & {"float32", "float16"},  # vector units have no double
        "runtime": {one for one in known if one and set(one.split("+")) <= plain},
        "one": set(),
    }[which]


def lacks_by_cohort(found, report):
    """Yield what is owed, and neither drawn nor named by the report."""
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
        if row.check == "layouts" and row.status == "passed":
            # A registered case belongs to no cohort, and has the layout all the same.
            cases = found.get((row.operator, row.check, "registered"), ())
            for cohort in LAYOUTS[1:]:
                laid = cohort in cohorts or any(map(laid_out(cohort), cases))
                if not laid and cohort not in told:
                    yield f"{row.operator}, layouts: {cohort!r} is neither drawn nor told"


def lacks_by_row(found, report):
    """Yield what a row owes, the declaration allows, and no case is.

    The declaration allows what the row `reference` drew in any cohort. It alone draws tensors of
    lists with more than 16 elements in a dimension.
    """
    listed = {
        case.signature.qualname
        for cases in found.values()
        for case in cases
        if any(parameter.is_tensor_list for parameter in case.signature.parameters)
    }
    # They draw to offer claims, not to check any.
    offered = {(r.operator, r.check) for r in report.rows if r.message.startswith("claims no")}
    for row in report.rows:
        if (row.operator, row.check) in offered:
            continue
        dtypes, *tests = BY_ROW.get(row.check, ("one",))
        cases = of_row(found, row.operator, row.check)
        if not cases:
            if row.status == "passed" and row.check in BY_ROW:
                yield f"{row.operator}, {row.check}: passed, and drew nothing"
            continue
        of_reference = of_row(found, row.operator, "reference")
        taken = {
            case.layouts.get(name.partition("[")[0], "")
            for case in cases
            for name, _ in case.tensors()
        }
        if len(taken) < LAYOUTS_OF.get(row.check, 0) and max(map(dimensions, cases)) > 1:
            yield f"{row.operator}, {row.check}: no layouts but {', '.join(sorted(taken))}"
        known = {case.dtype for case in of_reference}
        for dtype in owed_dtypes(dtypes, known) - {case.dtype for case in cases}:
            yield f"{row.operator}, {row.check}: no case in {dtype}"
        for number, test in enumerate(tests):
            allowed = any(map(test, of_reference)) and row.operator not in listed
            if allowed and not any(map(test, cases)):
                yield f"{row.operator}, {row.check}: no case for test {number} of {len(tests)}"


@pytest.mark.slow(cases=3)
@pytest.mark.parametrize("file", FILES)
def test_every_row_draws_what_it_owes_or_the_report_names_it(file, monkeypatch):
    monkeypatch.syspath_prepend(str(REPOSITORY))
    operators = [one for one in import_all([str(REPOSITORY / file)]) if one.kernels]
    found, report = drawn(operators, monkeypatch, rows())
    failed = [
        (row.operator, row.check, row.message) for row in report.rows if row.status == "failed"
    ]
    # Its kernel was not called.
    assert [one for one in failed if one[1] != "randomness"] == []
    assert [*lacks_by_cohort(found, report), *lacks_by_row(found, report)] == []


def test_every_row_that_draws_cases_says_what_it_owes():
    assert set(rows()) == {*BY_ROW, "reference"}


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


def test_every_size_of_0_is_launched_where_indices_then_have_no_value(tmp_path, monkeypatch):
    @opsmith.op("owed::taken")
    def taken(
        x: Float32[Tensor, "B R C"],
        rows: Annotated[Int32[Tensor, "P"], Index("B*R")],
        runs: Annotated[Int32[Tensor, "I"], Index("P")],
    ) -> Float32[Tensor, "P I C"]:
        return x.flatten(0, 1)[rows][:, None].expand(-1, len(runs), -1).clone()

    (tmp_path / "taken.cu").touch()
    taken.register_kernel("cuda", source=tmp_path / "taken.cu")
    tries, make = [], sampling._Sampler.__init__

    def made(sampler, draw, signature, wanted):
        tries.append(wanted)
        make(sampler, draw, signature, wanted)

    monkeypatch.setattr(sampling._Sampler, "__init__", made)
    found, _ = drawn([taken], monkeypatch, ["cuda-on-cpu"])
    cases = found["owed::taken", "cuda-on-cpu", "a size of 0"]
    empty = [
        {n for n, size in bind(c.signature, c.described()).dims.items() if not size} for c in cases
    ]
    assert empty == [{"B", "P", "I"}, {"R", "P", "I"}, {"C"}, {"P", "I"}, {"I"}]
    # In one sample each, besides those by which Hypothesis begins a search.
    assert sum(0 in wanted.forced.values() for wanted in tries) <= 3 * len(empty)
