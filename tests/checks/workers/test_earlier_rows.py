"""Rows of the last run hold while nothing that they rest on has changed."""

import json
from pathlib import Path

import pytest
import torch
from jaxtyping import Float32
from torch import Tensor

import opsmith
from opsmith.checks.cases.subject import subjects_of
from opsmith.checks.protocol import all_checks
from opsmith.checks.report.rows import FROM_BEFORE, Row
from opsmith.checks.workers.earlier_rows import EarlierRows
from opsmith.sources.importing import import_operators

DECLARATION = '''
import opsmith
from jaxtyping import Float32
from torch import Tensor

@opsmith.op("earlier::{name}")
def {name}(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
    """Return twice the argument; its backward is written below."""
    return x * 2

@{name}.register_autograd
def backward(ctx, grad):
    return grad * 2.0
'''
CHECKS = {one.name: one for one in all_checks()}


@pytest.fixture
def declared(tmp_path: Path, request: pytest.FixtureRequest):
    name = f"twice_{abs(hash(request.node.name))}"
    path = tmp_path / f"{name}.py"
    path.write_text(DECLARATION.format(name=name))
    (operator,) = import_operators(str(path)).operators
    (subject,) = subjects_of(operator)
    return path, operator, subject


def row(subject, check: str, status="passed") -> Row:
    return Row(subject.operator.name, subject.kernel, check, status, cases=3, seconds=1.0)


def again(operator, rows) -> EarlierRows:
    """What the next run knows of these rows, if the files are as they are now."""
    kept = json.loads(json.dumps(EarlierRows([operator]).keep(rows)))
    return EarlierRows([operator], kept)


def edit(path: Path, before: str, after: str) -> None:
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))


def test_a_row_that_passed_holds_and_says_that_it_is_from_before(declared):
    _, operator, subject = declared
    held = again(operator, [row(subject, "layouts")]).holding(CHECKS["layouts"], subject)
    assert held is not None
    assert (held.status, held.cases, held.seconds, held.notes) == ("passed", 3, 0.0, (FROM_BEFORE,))
    twice = again(operator, [held]).holding(CHECKS["layouts"], subject)
    assert twice is not None
    assert twice.notes == (FROM_BEFORE,)


@pytest.mark.parametrize("status", ["failed", "cut short", "not run"])
def test_what_did_not_pass_runs_again(declared, status):
    _, operator, subject = declared
    earlier = again(operator, [row(subject, "layouts", status)])
    assert earlier.holding(CHECKS["layouts"], subject) is None
    assert earlier.failed(CHECKS["layouts"], subject) == (status == "failed")


def test_a_check_that_did_not_run_before_runs(declared):
    _, operator, subject = declared
    assert again(operator, [row(subject, "layouts")]).holding(CHECKS["fake"], subject) is None


def rests_on(declared, check: str, before: str, after: str) -> bool:
    """Whether a row runs again after an edit of the module."""
    path, operator, subject = declared
    kept = json.loads(json.dumps(EarlierRows([operator]).keep([row(subject, check)])))
    edit(path, before, after)
    return EarlierRows([operator], kept).holding(CHECKS[check], subject) is None


@pytest.mark.parametrize("check", ["bounds", "gradient", "exact-gradient"])
def test_every_row_rests_on_the_reference(declared, check):
    assert rests_on(declared, check, "x * 2", "x * 3")


@pytest.mark.parametrize("check", ["bounds", "schedules", "exact"])
def test_a_row_of_the_kernel_alone_rests_on_no_backward(declared, check):
    assert not rests_on(declared, check, "grad * 2.0", "grad * 3.0")


@pytest.mark.parametrize("check", ["gradient", "exact-gradient", "reference", "layouts"])
def test_any_other_row_rests_on_the_backward_too(declared, check):
    assert rests_on(declared, check, "grad * 2.0", "grad * 3.0")


def test_a_backward_that_something_else_calls_is_rested_on(declared):
    path, _, _ = declared
    with path.open("a") as file:
        file.write("\nHALF = backward(None, 0.5)\n")
    assert rests_on(declared, "bounds", "grad * 2.0", "grad * 3.0")


def test_of_a_kernel_that_was_not_built_nobody_knows_what_it_includes(declared):
    path, operator, _ = declared
    path.with_name("kernel.cpp").write_text('#include "beside.h"')
    operator.register_kernel("cpu", source=path.with_name("kernel.cpp"))
    (subject,) = subjects_of(operator)
    for check in ("bounds", "reference"):
        earlier = again(operator, [row(subject, check)])
        assert earlier.holding(CHECKS[check], subject) is None


def test_of_an_operator_that_another_library_defines_no_row_holds():
    @opsmith.adopt("aten::asinh")
    def operator(self: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
        return torch.asinh(self)

    (subject,) = subjects_of(operator)
    earlier = again(operator, [row(subject, "reference")])
    assert earlier.holding(CHECKS["reference"], subject) is None
