"""`graphs::segment_reduce`: sums, means and maxima of the rows between one offset and the next."""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

import torch
from jaxtyping import Float, Int64
from torch import Tensor

import opsmith
from opsmith import Sorted, Unspecified


@opsmith.op("graphs::segment_reduce", parallel_dims=("C",))
def segment_reduce(
    x: Annotated[Float[Tensor, "N C"], Unspecified(nan=True)],
    offsets: Annotated[Int64[Tensor, "S+1"], Sorted(first=0, last="N")],
    reduce: Literal["sum", "mean", "max"] = "sum",
) -> Float[Tensor, "S C"]:
    """Sum, average or take the maximum of the rows of each segment.

    Args:
        x: N rows of C elements, for example a message of each edge, edges by their target.
        offsets: where each of S segments begins, and N at the end: as CSR has them.
        reduce: what becomes of a segment's rows.

    Returns:
        A row for each segment; zeros where it has no rows.

    Source:
        ``segment_csr`` of PyTorch Geometric's ``torch_scatter`` (Fey and Lenssen 2019,
        arXiv:1903.02428); ``torch.segment_reduce``, which gives infinity for a maximum of nothing.
    """
    count, lengths = offsets.shape[0] - 1, offsets.diff()
    if reduce == "max" and x.numel() > 0:
        return _largest(x, offsets)
    segments = torch.arange(count, device=x.device).repeat_interleave(lengths)
    total = x.new_zeros(count, x.shape[1]).index_add(0, segments, x)
    return total / lengths.clamp(min=1).unsqueeze(1) if reduce == "mean" else total


def _largest(x: Tensor, offsets: Tensor) -> Tensor:
    """The maxima of segments that are filled up to the longest with what is below all of x."""
    lengths = offsets.diff().unsqueeze(1)
    places = torch.arange(int(lengths.max()), device=x.device)
    rows = x[(offsets[:-1].unsqueeze(1) + places).clamp(max=x.shape[0] - 1)]
    least = x.detach().amin()
    filled = torch.where((places < lengths).unsqueeze(2), rows, least - least.abs() - 1)
    return torch.where(lengths > 0, filled.amax(1), 0)


@opsmith.op("graphs::segment_reduce_backward", parallel_dims=("C",), autograd="reference")
def segment_reduce_backward(
    grad: Float[Tensor, "S C"],
    x: Annotated[Float[Tensor, "N C"], Unspecified(nan=True)],
    result: Annotated[Float[Tensor, "S C"], Unspecified(nan=True)],
    offsets: Annotated[Int64[Tensor, "S+1"], Sorted(first=0, last="N")],
    reduce: Literal["sum", "mean", "max"] = "sum",
) -> Float[Tensor, "N C"]:
    """Give the gradient of `segment_reduce` with respect to `x`.

    Args:
        grad: the gradient of the result.
        x: as `segment_reduce` has it, and so the others.
        result: what `segment_reduce` gave.
        offsets: see `x`.
        reduce: see `x`.

    Returns:
        The gradient of each row; rows that are equally the maximum share it evenly.
    """
    count, lengths = offsets.shape[0] - 1, offsets.diff()
    segments = torch.arange(count, device=x.device).repeat_interleave(lengths)
    if reduce == "max":
        is_largest = (x == result[segments]).to(x.dtype)
        shares = torch.zeros_like(grad).index_add(0, segments, is_largest)
        return is_largest * (grad / shares.clamp(min=1))[segments]
    if reduce == "mean":
        grad = grad / lengths.clamp(min=1).unsqueeze(1)
    return grad[segments]


segment_reduce.register_kernel("cpu", source="segment_reduce.cpp")
segment_reduce.register_kernel("cuda", source="segment_reduce.cu")
segment_reduce_backward.register_kernel("cpu", source="segment_reduce.cpp")
segment_reduce_backward.register_kernel("cuda", source="segment_reduce.cu")
segment_reduce.register_backward(segment_reduce_backward, grads={"x": 0})


@segment_reduce.register_cases
def _cases(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    generator = torch.Generator().manual_seed(seed)
    # Empty segments at the begin, between and at the end; no segment; one of all rows.
    for lengths in ([0, 3, 0, 5, 1, 0], [], [9], [0, 0], [1] * 40, [200, 1, 60]):
        offsets = torch.tensor([0, *lengths]).cumsum(0)
        for columns in (1, 21, 520) if len(lengths) == 6 else (16,):
            x = torch.randn(sum(lengths), columns, generator=generator).to(dtype)
            for reduce in ("sum", "mean", "max"):
                yield {"x": x, "offsets": offsets, "reduce": reduce}
    # Rows that are equally the maximum.
    x = torch.randint(3, (12, 4), generator=generator).to(dtype)
    yield {"x": x, "offsets": torch.tensor([0, 5, 12]), "reduce": "max"}


@segment_reduce_backward.register_cases
def _backward_cases(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    generator = torch.Generator().manual_seed(seed + 1)
    for case in _cases(dtype, seed):
        result = segment_reduce.reference(**case)
        grad = torch.randn(result.shape, generator=generator).to(dtype)
        yield {"grad": grad, "result": result, **case}
