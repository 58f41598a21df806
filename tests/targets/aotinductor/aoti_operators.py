"""Operators with every kind of argument, and what else a compiled model may call."""

from collections.abc import Sequence
from typing import Annotated

import torch
from jaxtyping import Float, Int64
from torch import Tensor

import opsmith
from opsmith import Index

FAST = ("-O0",)  # to compile, not to run


@opsmith.op("aoti_test::everything")
def everything(
    x: Float[Tensor, "N C"],
    bias: Float[Tensor, "C"] | None,
    parts: list[Float[Tensor, "N C"]],
    steps: int,
    scale: float,
    negate: bool,
    mode: str,
    window: tuple[int, int],
    weights: Sequence[float],
    flags: Sequence[bool],
    shift: float | None = None,
    times: int | None = None,
    flip: bool | None = None,
    label: str | None = None,
    pads: Sequence[int] | None = None,
    gains: tuple[float, float] | None = None,
    more: list[Float[Tensor, "N C"]] | None = None,
    *,
    last: float = 0.5,
) -> tuple[Float[Tensor, "N C"], Float[Tensor, "N {window[0]}"]]:
    """Fold every argument into the results."""
    first = x * scale + steps + last
    if bias is not None:
        first = first + bias
    for part in [*parts, *(more or [])]:
        first = first + part
    first = first + sum(weights) + sum(flags) + len(mode) + window[1]
    first = first + (shift or 0) + (times or 0) + (0.25 if flip else 0) + len(label or "")
    first = first + sum(pads or ()) + sum(gains or ())
    if negate:
        first = -first
    return first, x.sum(1, keepdim=True).expand(-1, window[0]).contiguous()


everything.register_kernel("cpu", source="sources/everything.cpp", flags=FAST)


@opsmith.op("aoti_test::accumulate", mutates_args=("total",))
def accumulate(total: Float[Tensor, "N"], x: Float[Tensor, "N"]) -> None:
    """Add into an argument."""
    total.add_(x)


accumulate.register_kernel("cpu", source="sources/accumulate.cpp", flags=FAST)


@opsmith.op("aoti_test::positives", data_dependent=("K",))
def positives(x: Float[Tensor, "N"]) -> Float[Tensor, "K"]:
    """The positive elements."""
    return x[x > 0]


positives.register_kernel("cpu", source="sources/positives.cpp", flags=FAST)


@opsmith.op("aoti_test::pick")
def pick(
    x: Float[Tensor, "N C"], rows: Annotated[Int64[Tensor, "R"], Index("N")]
) -> Float[Tensor, "R C"]:
    """Rows of `x`; an index out of range is refused."""
    return x[rows]


pick.register_kernel("cpu", source="sources/pick.cpp", flags=FAST)


@opsmith.op("aoti_test::cumsum")
def cumsum(x: Float[Tensor, "N"], text: str = "") -> Float[Tensor, "N"]:
    """Running sums plus the length of a text; named like a function that PyTorch has."""
    return x.cumsum(0) + len(text)


cumsum.register_kernel("cpu", source="sources/cumsum.cpp", flags=FAST)


@opsmith.op("aoti_test::twin")
def twin(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    """A copy; never built."""
    return x.clone()


@opsmith.op("aoti_test_too::twin")
def other_twin(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    """The same name in another namespace; never built."""
    return x.clone()


twin.register_kernel("cpu", source="sources/cumsum.cpp")
other_twin.register_kernel("cpu", source="sources/cumsum.cpp")


@opsmith.op("aoti_test::python_only")
def python_only(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    """`x` cubed; has a Python kernel and no other."""
    return x * x * x


@python_only.register_kernel("cpu")
def _python(x: Tensor) -> Tensor:
    return torch.from_numpy(x.numpy() ** 3)
