"""What a call reads keeps its values while the call writes, whatever memory they share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import overlapping
import pytest
import torch
from jaxtyping import Float32, Int64
from torch import Tensor

import opsmith
from opsmith import ArgumentError, checks
from opsmith.checks.catalogue.validation import _bad_arguments

SOURCES = Path(__file__).with_name("overlap_sources")


def mirror(
    x: Float32[Tensor, "N"],
    more: list[Float32[Tensor, "N"]],
    out: Float32[Tensor, "N"],
    count: Float32[Tensor, "N"] | None = None,
) -> None:
    """Write the sum of `x` and `more`, from the last element to the first, into `out`."""
    n = x.shape[0]
    for i in range(n):
        out[i] = x[n - 1 - i] + sum(item[n - 1 - i] for item in more)
    if count is not None:
        count.add_(1)


def _declared(name: str) -> Any:
    return opsmith.op(f"overlap::{name}", mutates_args=("out", "count"))(mirror)


def _native(name: str, **options: Any) -> Any:
    operator = _declared(name)
    flags = (f"-DNAME={name}", "-O0")
    operator.register_kernel("cpu", source=SOURCES / "mirror_into.cpp", flags=flags, **options)
    return operator


REFERENCE = _declared("mirror_reference")
STRIDED = _native("mirror_strided", strided=True)
CONTIGUOUS = _native("mirror_contiguous")
TORCH = _declared("mirror_torch")
TORCH.register_kernel("cpu", source=SOURCES / "mirror_torch.cpp", api="torch", flags=("-O0",))
# test_self_registering.py states most of it for kernels of this kind, whose libraries take long.
OPERATORS = [REFERENCE, pytest.param(TORCH, marks=pytest.mark.long), STRIDED, CONTIGUOUS]
every_kind = pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.name)


def _memory() -> Tensor:
    return torch.arange(1.0, 41.0)


CALLS: dict[str, Callable[[Tensor], dict[str, Any]]] = {
    "the same tensor": lambda m: {"x": m[:5], "more": [m[10:15]], "out": m[:5]},
    "one element on": lambda m: {"x": m[:5], "more": [], "out": m[1:6]},
    "one element back": lambda m: {"x": m[1:6], "more": [], "out": m[:5]},
    "an element of a list": lambda m: {"x": m[20:25], "more": [m[30:35], m[2:7]], "out": m[:5]},
    "two elements of a list": lambda m: {"x": m[20:25], "more": [m[2:7], m[:5]], "out": m[:5]},
    "every second element": lambda m: {"x": m[:10:2], "more": [], "out": m[:5]},
    "written to every second": lambda m: {"x": m[:5], "more": [], "out": m[:10:2]},
    "the last element": lambda m: {"x": m[4:9], "more": [], "out": m[:5]},
    "the second that is written": lambda m: {
        "x": m[:5], "more": [m[:5]], "out": m[10:15], "count": m[:5],
    },
    "side by side": lambda m: {"x": m[5:10], "more": [], "out": m[:5], "count": m[10:15]},
}  # fmt: skip


@pytest.mark.slow(cases=2)
@every_kind
@pytest.mark.parametrize("name", CALLS)
def test_what_is_read_keeps_its_values_while_the_call_writes(operator: Any, name: str) -> None:
    given, apart = CALLS[name](_memory()), CALLS[name](_memory())
    apart = {
        key: [item.clone() for item in value] if isinstance(value, list) else value.clone()
        for key, value in apart.items()
    }
    assert operator(**given) is None
    mirror(**apart)
    assert torch.equal(given["out"], apart["out"])
    if "count" in given:
        assert torch.equal(given["count"], apart["count"])


@pytest.mark.slow(cases=2)
@every_kind
def test_two_arguments_that_are_written_do_not_share_memory(operator: Any) -> None:
    m = _memory()
    said = f"{operator.name}: arguments 'out' and 'count' are both written, but share memory. "
    wrong = ((m[:5], m[:5]), (m[:5], m[4:9]), (m[:10:2], m[:10:2]))
    for out, count in wrong:
        with pytest.raises(RuntimeError) as caught:
            operator(m[20:25], [], out, count)
        assert str(caught.value) == f"{said}Pass a clone."
    assert torch.equal(m, _memory())
    # Columns of one matrix span the same memory, and share no element.
    columns = m.view(20, 2)
    operator(torch.zeros(20), [], columns[:, 0], columns[:, 1])
    assert columns[:, 0].eq(0).all() and columns[0, 1] == 3
    operator(m[20:25], [], m[:5], None)
    operator(m[20:20], [], m[:0], m[:0])


@opsmith.op("overlap::counted", mutates_args=("x", "y"))
def counted(x: Float32[Tensor, "*n"], y: Int64[Tensor, "*m"] | None = None) -> None:
    """Write into two tensors."""


def test_a_written_argument_has_an_own_place_for_each_element() -> None:
    for sizes, strides, overlaps in overlapping.BY_HAND:
        memory = torch.zeros(1 + sum((n - 1) * t for n, t in zip(sizes, strides, strict=True)))
        if not overlaps:
            counted(memory.as_strided(sizes, strides))
            continue
        with pytest.raises(ArgumentError, match="'x' is written, but its elements share memory: "):
            counted(memory.as_strided(sizes, strides))


def test_two_written_arguments_share_no_byte() -> None:
    shared = 0
    for base, x, y in overlapping.views(seed=1, count=400):
        if any(overlapping.overlaps_itself(one, base) for one in (x, y)):
            said = "is written, but its elements share memory"
        elif overlapping.share_elements(x, y, base):
            shared += 1
            said = "'x' and 'y' are both written, but share memory"
        else:
            counted(x, y)
            continue
        with pytest.raises(ArgumentError, match=said):
            counted(x, y)
    assert shared > 20


@pytest.mark.slow(cases=2)
@every_kind
def test_every_kind_of_kernel_refuses_to_write_into_elements_in_one_place(operator: Any) -> None:
    said = (
        f"{operator.name}: argument 'out' is written, but its elements share memory: dimension 0 "
        "was expanded to 3. Pass a clone."
    )
    with pytest.raises(RuntimeError) as caught:
        operator(torch.ones(3), [], torch.zeros(1).expand(3))
    assert str(caught.value) == said
    m = _memory()
    with pytest.raises(RuntimeError, match="'out' and 'count' are both written, but share memory"):
        operator(torch.ones(3), [], m[:9:3], m[3:8:2])
    operator(torch.ones(3), [], m[:9:3], m[1:10:3])


def test_the_row_refusal_tries_written_arguments_whose_elements_share_memory() -> None:
    @opsmith.op("overlap::both", mutates_args=("x", "y"))
    def both(x: Float32[Tensor, "N"], y: Float32[Tensor, "N M"]) -> None:
        x.add_(1)

    tried = [
        bad.what
        for bad in _bad_arguments(both.signature, {"x": torch.ones(3), "y": torch.ones(3, 2)})
    ]
    assert "'x' with elements in one place: strides (0,)" in tried
    assert "'y' with elements in one place: strides (1, 1)" in tried
    (row,) = checks.run(both, select=["validation"], isolate=False, examples=1).rows
    assert row.status == "passed", row.message
