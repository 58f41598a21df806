"""What a call reads keeps its values while the call writes, whatever memory they share."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from jaxtyping import Float32
from torch import Tensor

import opsmith

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
OPERATORS = (REFERENCE, STRIDED, CONTIGUOUS, TORCH)


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


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.name)
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


@pytest.mark.parametrize("operator", OPERATORS, ids=lambda operator: operator.name)
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
