"""Lists and optional tensors that are written: what else the call reads keeps its values."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import overlapping
import pytest
import torch
from jaxtyping import Float32
from torch import Tensor

import opsmith
from opsmith import ArgumentError

SOURCES = Path(__file__).with_name("overlap_sources")


def mirror_list(
    xs: list[Float32[Tensor, "N"]],
    more: list[Float32[Tensor, "N"]],
    last: Float32[Tensor, "M"],
    count: Float32[Tensor, "M"] | None = None,
) -> None:
    """Write each tensor of `more` plus 1 into that of `xs`, from the last element to the first."""
    for to, value in [*zip(xs, more, strict=True), *([] if count is None else [(count, last)])]:
        for i in range(len(to)):
            to[i] = value[len(to) - 1 - i] + 1


def _declared(name: str) -> Any:
    return opsmith.op(f"overlap::{name}", mutates_args=("xs", "count"))(mirror_list)


def _native(name: str, **options: Any) -> Any:
    operator = _declared(name)
    flags = (f"-DNAME={name}", "-O0")
    operator.register_kernel("cpu", source=SOURCES / "mirror_list.cpp", flags=flags, **options)
    return operator


REFERENCE = _declared("mirror_list_reference")
STRIDED = _native("mirror_list_strided", strided=True)
CONTIGUOUS = _native("mirror_list_contiguous")
TORCH = _declared("mirror_list_torch")
TORCH.register_kernel("cpu", source=SOURCES / "mirror_list_torch.cpp", api="torch", flags=("-O0",))
IN_CPP = [pytest.param(STRIDED, marks=pytest.mark.slow(cases=2))]
# Libraries of their own; test_overlap.py and test_self_registering.py have kernels of these kinds.
IN_CPP += [pytest.param(one, marks=pytest.mark.long) for one in (CONTIGUOUS, TORCH)]
every_kind = pytest.mark.parametrize("operator", [REFERENCE, *IN_CPP], ids=lambda one: one.name)


def _memory() -> Tensor:
    return torch.arange(1.0, 61.0)


CALLS: dict[str, Callable[[Tensor], dict[str, Any]]] = {
    "the same tensors": lambda m: {"xs": [m[:5], m[5:10]], "more": [m[:5], m[5:10]]},
    "each other's": lambda m: {"xs": [m[:5], m[5:10]], "more": [m[5:10], m[:5]]},
    "across two": lambda m: {"xs": [m[:5], m[5:10]], "more": [m[20:25], m[3:8]]},
    "written to every second": lambda m: {"xs": [m[:10:2], m[1:10:2]], "more": [m[:5], m[5:10]]},
    "by a tensor": lambda m: {"xs": [m[:5]], "more": [m[30:35]], "last": m[:5], "count": m[8:13]},
    "into a tensor": lambda m: {"xs": [], "more": [], "last": m[1:6], "count": m[:5]},
    "a list by a tensor": lambda m: {
        "xs": [m[20:25]], "more": [m[:5]], "last": m[50:55], "count": m[2:7],
    },
    "nothing": lambda m: {"xs": [], "more": []},
}  # fmt: skip


@every_kind
@pytest.mark.parametrize("name", CALLS)
def test_what_is_read_keeps_its_values_while_the_call_writes(operator: Any, name: str) -> None:
    def call() -> dict[str, Any]:
        memory = _memory()
        return {"last": memory[40:45], **CALLS[name](memory)}

    given = call()
    apart = {
        key: [item.clone() for item in value] if isinstance(value, list) else value.clone()
        for key, value in call().items()
    }
    assert operator(**given) is None
    mirror_list(**apart)
    for one, other in zip(given["xs"], apart["xs"], strict=True):
        assert torch.equal(one, other)
    if "count" in given:
        assert torch.equal(given["count"], apart["count"])


@pytest.mark.long
@every_kind
def test_two_tensors_that_are_written_do_not_share_memory(operator: Any) -> None:
    m = _memory()

    def refused(said: str, xs: list[Tensor], count: Tensor | None = None) -> None:
        with pytest.raises(ArgumentError) as caught:
            operator(xs, [m[20:25]] * len(xs), m[30:35], count)
        assert str(caught.value) == f"{operator.name}: {said} Pass a clone."

    both = "are both written, but share memory."
    refused(f"arguments 'xs[0]' and 'xs[1]' {both}", [m[:5], m[:5]])
    refused(f"arguments 'xs[1]' and 'xs[3]' {both}", [m[50:55], m[:5], m[15:20], m[4:9]])
    refused(f"arguments 'xs[1]' and 'count' {both}", [m[:5], m[10:15]], m[11:16])
    refused(
        "argument 'xs[1]' is written, but its elements share memory: dimension 0 was expanded to "
        "5.",
        [m[:5], m[7].expand(5)],
    )
    assert torch.equal(m, _memory())
    columns = m.view(20, 3)
    operator([columns[:, 0], columns[:, 2]], [torch.zeros(20)] * 2, m[:1], m[1:2])


@every_kind
def test_the_counters_of_all_tensors_that_are_written_rise(operator: Any) -> None:
    xs, last, count = [torch.zeros(2), torch.zeros(2)], torch.zeros(3), torch.zeros(3)
    more = [torch.ones(2), torch.ones(2)]
    operator(xs, more, last, None)
    operator(xs, more, last, count)
    assert [one._version for one in (*xs, *more, last, count)] == [2, 2, 0, 0, 0, 1]


@opsmith.op("overlap::several", mutates_args=("xs", "ys"))
def several(xs: list[Tensor], ys: list[Tensor]) -> None:
    """Write into two lists."""


def test_tensors_of_lists_share_no_byte() -> None:
    draw, refused = random.Random(3), 0
    for seed in range(150):
        base = torch.zeros(400)
        pairs = (pair[1:] for pair in overlapping.views(seed, 4))
        every = [_moved(one, base, draw) for pair in pairs for one in pair]
        every = [one for one in every if not overlapping.overlaps_itself(one, base)]
        xs, ys = every[: len(every) // 2], every[len(every) // 2 :]
        named = [(f"xs[{i}]", x) for i, x in enumerate(xs)]
        named += [(f"ys[{i}]", y) for i, y in enumerate(ys)]
        shared = {
            f"arguments {one!r} and {other!r}"
            for i, (one, x) in enumerate(named)
            for other, y in named[i + 1 :]
            if overlapping.share_elements(x, y, base)
        }
        if not shared:
            several(xs, ys)
            continue
        refused += 1
        with pytest.raises(ArgumentError) as caught:
            several(xs, ys)
        assert any(words in str(caught.value) for words in shared), (shared, caught.value)
    assert 20 < refused < 140


def _moved(view: Tensor, base: Tensor, draw: random.Random) -> Tensor:
    """Return a view of the same strides at another place of `base`."""
    memory = base.view(view.dtype)
    reach = sum((n - 1) * t for n, t in zip(view.shape, view.stride(), strict=True))
    first = draw.randrange(max(1, memory.numel() - reach))
    return memory.as_strided(view.shape, view.stride(), first)
