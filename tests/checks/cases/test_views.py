"""Every layout keeps the values, and has the one property that it is named after."""

import pytest
import torch
from jaxtyping import Float32
from torch import Tensor

import opsmith
from opsmith import checks
from opsmith.checks.cases import layouts
from opsmith.checks.cases.layouts import LAYOUTS, OVERLAPPING, lay_out, make_sliding, possible

SHAPES = [(), (3,), (1,), (2, 3), (1, 4), (2, 3, 4), (2, 1, 4), (2, 3, 4, 5), (0, 3), (1, 1, 1)]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_layout_keeps_the_values_and_is_another_where_it_is_possible(shape, layout):
    tensor = torch.randn(shape)
    tensor = make_sliding(tensor) if layout == OVERLAPPING else tensor
    view = lay_out(tensor, layout)
    assert torch.equal(view, tensor)
    plain = view.is_contiguous() and not view.storage_offset()
    assert plain or possible(tensor, layout) or not tensor.numel()


@pytest.mark.parametrize(
    ("layout", "strides", "offset"),
    [
        (layouts.STEPPED, (24, 4, 1), 0),
        (layouts.CHANNELS_LAST, (12, 1, 3), 0),
        (layouts.TRANSPOSED, (1, 2, 6), 0),
    ],
)
def test_a_view_has_the_strides_that_indexing_and_permuting_leave(layout, strides, offset):
    view = lay_out(torch.randn(2, 3, 4), layout)
    assert (view.stride(), view.storage_offset()) == (strides, offset)


def test_padded_rows_have_poison_behind_each_row_and_nothing_else():
    view = lay_out(torch.zeros(3, 5), layouts.PADDED)
    assert view.stride(1) == 1
    assert view.stride(0) > 5
    assert not view.storage_offset()
    memory = torch.empty(0).set_(view.untyped_storage())
    assert int(memory.isnan().sum()) == 3 * (view.stride(0) - 5)


def test_memory_that_starts_later_is_contiguous():
    view = lay_out(torch.zeros(3, 5), layouts.OFFSET)
    assert view.is_contiguous()
    assert view.storage_offset() > 0


def test_permuted_dimensions_are_neither_in_order_nor_reversed():
    for size in range(2, 20):
        strides = lay_out(torch.zeros(2, 3, size), layouts.PERMUTED).stride()
        assert list(strides) not in (sorted(strides), sorted(strides, reverse=True))


def test_overlapping_rows_share_all_but_one_element():
    view = lay_out(make_sliding(torch.randn(3, 4)), OVERLAPPING)
    assert view.stride() == (1, 1)
    assert view.untyped_storage().nbytes() == 4 * (3 + 4 - 1)


@opsmith.op("views::vector")
def vector(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
    return x * 2


def test_a_layout_that_no_argument_can_have_is_not_looked_for():
    (row,) = (
        row
        for row in checks.run(vector, select=["layouts"], isolate=False, examples=15).rows
        if row.check == "layouts"
    )
    tried = {sample.cohort for sample in row.samples}
    assert {layouts.OFFSET, layouts.STEPPED, layouts.SLICED} <= tried
    assert not tried & {layouts.PADDED, layouts.PERMUTED, layouts.CHANNELS_LAST, OVERLAPPING}
