"""Boxes name their image in a column of floats: right operators pass, and faults are found."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Annotated, Any

import pytest
import torch
from jaxtyping import Float, Int64
from torch import Tensor

import opsmith
from opsmith import Index, Selects, Unspecified, checks
from opsmith.checks.cases.boundary_values import ARRANGEMENTS, FLOATS
from opsmith.checks.cases.values import fill
from opsmith.checks.numerics import gradients, oracle, tolerances
from opsmith.checks.numerics.comparison import compare
from opsmith.signature import signature_of

ROWS = [
    *("dispatch", "reference", "layouts", "empty-sizes", "gradient", "gradcheck"),
    *("nested-gradients", "statefulness", "vmap", "validation"),
]
Rows = Annotated[Float[Tensor, "R 2"], Index("N", column=0)]
Boxes = Annotated[Float[Tensor, "R 5"], Index("N", column=0), Unspecified(nan=True, inf=True)]


def wide(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))


def sampled(x: Float[Tensor, "N C H W"], rois: Boxes) -> Float[Tensor, "R C"]:
    """Interpolate each box's image in the middle of the box."""
    image = rois[:, 0].long()
    found = torch.zeros(len(rois), x.shape[1], dtype=x.dtype)
    places = []
    for size, first, last in ((x.shape[2], 2, 4), (x.shape[3], 1, 3)):
        middle = ((rois[:, first] + rois[:, last]) / 2).clamp(0, size - 1)
        low = middle.floor().clamp(max=max(size - 2, 0)).long()
        share = middle - low
        places.append(((low, 1 - share), ((low + 1).clamp(max=size - 1), share)))
    for (y, much), (column, more) in itertools.product(*places):
        found = found + x[image, :, y, column] * (much * more)[:, None]
    return found


def with_images(change: Callable[[Tensor, int], Tensor]) -> Callable[[Tensor, Tensor], Tensor]:
    """Return a kernel that samples from other images than the boxes name."""

    def kernel(x: Tensor, rois: Tensor) -> Tensor:
        image = change(rois[:, :1].double(), len(x)).to(rois.dtype)
        return sampled(wide(x), wide(torch.cat([image, rois[:, 1:]], 1))).to(x.dtype)

    return kernel


def differing(x: Tensor, rois: Tensor, grad: Tensor, change: Callable[[Tensor], Tensor]) -> Any:
    with torch.enable_grad():
        image, boxes = wide(x).detach().requires_grad_(), wide(rois).detach().requires_grad_()
        found = sampled(image, torch.cat([change(boxes[:, :1]), boxes[:, 1:]], 1))
        return torch.autograd.grad(found, (image, boxes), wide(grad))


def declared(
    name: str, kernel: Callable[..., Tensor], backward: Callable[..., Any] | None = None
) -> opsmith.Operator:
    gradient: Any = {"autograd": "reference"} if backward is None else {}
    where = ("H > 0", "W > 0")
    operator = opsmith.op(f"columns::{name}", where=where, **gradient)(sampled)
    operator.register_kernel("cpu", kernel)
    if backward is not None:

        def setup(ctx: Any, inputs: Any, output: Any) -> None:
            ctx.save_for_backward(*inputs)

        def rule(ctx: Any, grad: Tensor) -> Any:
            x, rois = ctx.saved_tensors
            return tuple(one.to(x.dtype) for one in backward(x, rois, grad))

        operator.register_autograd(rule, setup_context=setup)
    return operator


own = with_images(lambda image, count: image)
RIGHT = declared("right", own)
RIGHT_BY_HAND = declared(
    "right_by_hand", own, lambda x, rois, grad: differing(x, rois, grad, lambda image: image)
)


@pytest.mark.slow
@pytest.mark.parametrize("operator", [RIGHT, RIGHT_BY_HAND], ids=lambda one: one.name)
def test_a_right_operator_passes_every_row(operator: opsmith.Operator) -> None:
    report = checks.run(operator, select=ROWS, examples=30, isolate=False)
    assert report.ok, report.explain()
    assert [row.check for row in report.rows if row.status == "passed"] == ROWS
    (slopes,) = (row for row in report.rows if row.check == "gradcheck")
    assert not any("every case" in note for note in slopes.notes)


def _others(x: Tensor, rois: Tensor, grad: Tensor) -> Any:
    return differing(x, rois, grad, lambda image: (image + 1) % len(x))


def _of_the_number(x: Tensor, rois: Tensor, grad: Tensor) -> Any:
    by_image, by_box = differing(x, rois, grad, lambda image: image)
    return by_image, by_box + torch.tensor([1.0, 0, 0, 0, 0])


FAULTS = {
    "the_next_image": (with_images(lambda image, count: (image + 1) % count), None, "reference"),
    "the_first_image": (with_images(lambda image, count: image * 0), None, "reference"),
    "the_box_as_image": (
        with_images(lambda image, count: torch.arange(len(image))[:, None] % count),
        None,
        "reference",
    ),
    "never_the_last_image": (
        with_images(lambda image, count: image.clamp(max=max(count - 2, 0))),
        None,
        "reference",
    ),
    "gradient_of_the_next_image": (own, _others, "gradient"),
    "gradient_of_the_number": (own, _of_the_number, "gradient"),
}


@pytest.mark.slow(cases=6)
@pytest.mark.parametrize("name", FAULTS)
def test_a_kernel_that_takes_another_image_is_found(name: str, no_shrinking: None) -> None:
    kernel, backward, row = FAULTS[name]
    operator = declared(name, kernel, backward)
    report = checks.run(operator, select=[row], examples=10, isolate=False)
    assert [row.status for row in report.rows] == ["failed"], report.explain()


def test_a_batching_rule_that_takes_the_first_boxes_is_found(no_shrinking: None) -> None:
    """Samples differ in their boxes too: rows of boxes change places."""
    operator = declared("first_boxes", own)

    @operator.register_vmap
    def _(info: Any, dims: Any, x: Tensor, rois: Tensor) -> Any:
        x = x.movedim(dims[0], 0) if dims[0] is not None else x.expand(info.batch_size, *x.shape)
        rois = rois if dims[1] is None else rois.movedim(dims[1], 0)[0]
        return torch.stack([operator(one, rois) for one in x]), 0

    report = checks.run(operator, select=["vmap"], isolate=False)
    assert [row.status for row in report.rows] == ["failed"]


def away(x: Tensor, rows: Tensor) -> Tensor:
    return (x[rows[:, 0].long()] - rows[:, 1:]).abs()


@opsmith.op("columns::nearest")
def nearest(x: Float[Tensor, "N C"], rows: Rows) -> Annotated[Int64[Tensor, "R"], Selects(away)]:
    return away(x, rows).argmin(1)


def test_values_that_decide_between_indices_are_those_of_the_row() -> None:
    torch.manual_seed(0)
    x, rows = torch.randn(4, 5), torch.rand(6, 2)
    rows[:, 0] = torch.tensor([0, 1, 2, 3, 2, 1])
    truth = oracle.expected_of(nearest, {"x": x, "rows": rows})
    others = away(x.roll(1, 0), rows).argmin(1)
    problem = compare([others], truth).problem
    assert problem is not None
    assert "6 of 6 elements are wrong" in problem


def test_the_refusal_row_breaks_the_column(tried: list[str]) -> None:
    report = checks.run(RIGHT, select=["validation"], isolate=False)
    assert report.ok, report.explain()
    for number in ("-1", "0.5"):
        assert any(f"'rois' with the value {number} in column 0" in what for what in tried)


@pytest.mark.parametrize("kind", ["", *FLOATS, *ARRANGEMENTS])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float64", "int64"])
def test_each_kind_of_values_keeps_the_column(kind: str, dtype: str) -> None:
    def f(
        x: Annotated[Float[Tensor, "N 3"], Index(7, column=1)],
        edges: Annotated[Int64[Tensor, "E 2"], Index(7, column=1)],
    ) -> Tensor: ...

    parameter = signature_of(f, "ns::f").by_name["edges" if dtype == "int64" else "x"]
    values = fill(parameter, (400, 3), dtype, 1, {}, {}, kind)
    column = values[:, 1]
    assert column.long().to(values.dtype).equal(column)
    assert set(column.tolist()) <= set(range(7))
    if kind in ("", *FLOATS):
        assert set(column.tolist()) == set(range(7))
    if kind == "ends of the range":
        assert {0, 6} <= set(column.tolist())
    if kind in FLOATS and dtype != "int64":  # the other columns are as they would be without it
        alone = fill(parameter.without_columns(), (400, 3), dtype, 1, {}, {}, kind)
        torch.testing.assert_close(values[:, ::2], alone[:, ::2], rtol=0, atol=0, equal_nan=True)


def test_numbers_of_the_column_are_those_that_the_dtype_has() -> None:
    def f(x: Annotated[Float[Tensor, "N 2"], Index(1001, column=0)]) -> Tensor: ...

    parameter = signature_of(f, "ns::f").by_name["x"]
    drawn = fill(parameter, (4000, 2), "bfloat16", 1, {}, {})[:, 0]
    assert drawn.max() == 256  # the next whole number that bfloat16 has is 258
    assert drawn.min() == 0


@opsmith.op("columns::weighed", autograd="reference")
def weighed(x: Float[Tensor, "N C"], rows: Rows) -> Float[Tensor, "R C"]:
    return x[rows[:, 0].long()] * rows[:, 1:]


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_an_index_in_a_column_does_not_widen_the_tolerance(dtype: torch.dtype) -> None:
    """The truth is measured by moving arguments a little, and half of all 2.0 become image 1."""
    torch.manual_seed(0)
    x, rows = torch.randn(4, 3, dtype=dtype), torch.rand(6, 2, dtype=dtype) * 3
    rows[:, 0] = torch.tensor([0, 1, 2, 3, 2, 1])
    given = {"x": x, "rows": rows}
    truth = oracle.expected_of(weighed, given)
    slopes = gradients.expected_gradients(weighed, given, [torch.ones(6, 3, dtype=dtype)])
    assert slopes is not None
    for found, places in ((truth, [0]), (slopes, [0, 1])):
        for place in places:
            *_, (rounding, _) = found.rounding(place)
            allowed = tolerances.tolerance(found, place, dtype) + rounding
            units = 200 if dtype == torch.float64 else 100  # the truth is rounded, too
            assert float(allowed.max()) < units * torch.finfo(dtype).eps


def test_a_result_that_is_kept_is_found_where_values_stand_beside_an_index() -> None:
    def halved(rows: Annotated[Float[Tensor, "R 2"], Index(3, column=0)]) -> Float[Tensor, "R 2"]:
        return rows / 2

    kept: dict[Any, Tensor] = {}

    def kernel(rows: Tensor) -> Tensor:
        first = rows.flatten()[:1].tolist()
        return kept.setdefault((rows.shape, rows.dtype, *first), rows / 2).clone()

    operator = opsmith.op("columns::halved")(halved)
    operator.register_kernel("cpu", kernel)
    report = checks.run(operator, select=["statefulness"], examples=10, isolate=False)
    assert [row.code for row in report.rows] == ["OPS-STATE-EARLIER"], report.explain()
