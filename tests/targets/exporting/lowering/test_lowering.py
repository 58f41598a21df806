"""Choosing forms and inlining references, which every target that takes models shares."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from calling import Call
from jaxtyping import Float
from torch import Tensor
from torch.export import Dim

import opsmith
from opsmith import ExportError
from opsmith.targets import prepare
from opsmith.targets.exporting.lowering.choice import Choice, Chooser, inline
from opsmith.targets.exporting.lowering.inlining import lower

pytestmark = pytest.mark.slow(cases=2)


@opsmith.op("lowering_test::copied")
def copied(x: Float[Tensor, "N C"]) -> Float[Tensor, "N C"]:
    out = torch.zeros_like(x)
    out.add_(x)
    return out


@opsmith.op("lowering_test::accumulate", mutates_args=("total",))
def accumulate(x: Float[Tensor, "N C"], total: Float[Tensor, "C"]) -> Float[Tensor, "N C"]:
    total += x.sum(0)
    return copied(x) * 2


@opsmith.op("lowering_test::outer")
def outer(x: Float[Tensor, "N C"]) -> Float[Tensor, "N C"]:
    total = x.new_zeros(x.shape[1])
    return accumulate(x, total) + total


@opsmith.op("lowering_test::by_length")
def by_length(x: Float[Tensor, "N C"]) -> Float[Tensor, "N C"]:
    if len(x) > 3:
        return x * 2
    return x * 3


@opsmith.op("lowering_test::by_size")
def by_size(x: Float[Tensor, "N C"]) -> Float[Tensor, "N C"]:
    return x * 2 if x.shape[0] > 3 else x * 3


@opsmith.op("lowering_test::by_value")
def by_value(x: Float[Tensor, "N C"]) -> Float[Tensor, "N C"]:
    if x.sum() > 0:
        return x * 2
    return x * 3


def lowered(function: Any, *inputs: Tensor, pure: bool, kept: tuple[Any, ...] = ()) -> Any:
    forms = {
        "library": lambda operator, nodes: Choice(operator, "library"),
        "inline": inline,
    }
    wanted = dict.fromkeys((operator.name for operator in kept), "library")
    chooser = Chooser(wanted, forms, "the test's runtime", automatic=["inline"])
    rows = tuple({0: Dim("rows", min=2)} for _ in inputs)
    return lower(prepare(Call(function), inputs, dynamic_shapes=(rows,)), chooser, pure=pure)


X = torch.randn(4, 3)


@pytest.mark.parametrize("pure", [True, False])
@pytest.mark.parametrize(
    "function",
    [copied, lambda x: accumulate(x, torch.ones(3)), outer],
    ids=["what it made itself", "its argument", "by another operator"],
)
def test_references_that_write_are_inlined_for_every_runtime(function, pure):
    found = lowered(function, X, pure=pure)
    called = {str(node.target) for node in found.program.graph.nodes if node.op == "call_function"}
    assert not [name for name in called if not name.startswith(("aten", "<built-in"))]
    for rows in (2, 5):
        x = torch.randn(rows, 3)
        torch.testing.assert_close(found.program.module()(x), function(x))


@pytest.mark.parametrize("pure", [True, False])
def test_an_operator_that_writes_keeps_its_form_inside_a_reference(pure):
    found = lowered(outer, X, pure=pure, kept=(accumulate,))
    assert [choice.operator for choice in found.kept] == [accumulate]
    twins = [n for n in found.program.graph.nodes if "opsmith_functional" in str(n.target)]
    assert len(twins) == (1 if pure else 0)
    torch.testing.assert_close(found.program.module()(X), outer(X))


def line_of(text: str) -> str:
    lines = Path(__file__).read_text().splitlines()
    (number,) = (n for n, line in enumerate(lines, 1) if line.strip() == text)
    return f"{__file__}:{number}: {text}"


@pytest.mark.parametrize("pure", [True, False])
@pytest.mark.parametrize(
    ("operator", "line"),
    [
        (by_length, "if len(x) > 3:"),
        (by_size, "return x * 2 if x.shape[0] > 3 else x * 3"),
        (by_value, "if x.sum() > 0:"),
    ],
)
def test_a_branch_is_refused_with_its_operator_and_its_line(operator, line, pure):
    with pytest.raises(ExportError) as caught:
        lowered(lambda x: operator(copied(x)), X, pure=pure)
    message = str(caught.value)
    assert message.startswith(f"{operator.name}: ")
    assert f"\n  at {line_of(line)}\n" in message
    assert "copied" not in message


@pytest.mark.long
def test_aotinductor_inlines_a_reference_that_writes_into_what_it_made(tmp_path):
    artifact = opsmith.export(
        Call(outer), (X,), target="aotinductor", out=tmp_path / "dist", form="inline", say=None
    )
    assert {use.form for use in artifact.manifest.operators} == {"inline"}
    assert artifact.manifest.agreement.largest < 1e-6
    text = artifact.path("README.md").read_text()
    assert "model = opsmith.load(" in text and "cmake -S runner -B build" in text
    assert "- `inputs_0: float32 (4, 3)`" in text
    assert "- `lowering_test::outer`: inline" in text
