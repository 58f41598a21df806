"""`llm::grouped_linear`: for each row the matrix of its expert, in a mixture of experts."""

from collections.abc import Iterator
from typing import Annotated, Any

import torch
from jaxtyping import Float, Int32
from torch import Tensor

import opsmith
from opsmith import Sorted, Unspecified


@opsmith.op(
    "llm::grouped_linear",
    parallel_dims=("N",),
    summed_dims=("K",),
    linear_in=("x", "weight"),
)
def grouped_linear(
    x: Annotated[Float[Tensor, "T K"], Unspecified(nan=True, inf=True)],
    weight: Annotated[Float[Tensor, "E K N"], Unspecified(nan=True, inf=True)],
    offsets: Annotated[Int32[Tensor, "E+1"], Sorted(first=0, last="T")],
) -> Float[Tensor, "T N"]:
    """Multiply each row by the matrix of its expert.

    Args:
        x: T rows of K elements, sorted by expert: the tokens in the order of `moe_gating`'s
            choices.
        weight: a matrix of K rows and N columns for each of E experts. A transposed view, as of
            ``Linear``'s weights of N rows, is read as it lies.
        offsets: where the rows of each expert begin, and T at the end.

    Returns:
        ``x[t] @ weight[e]`` for each row t, where ``offsets[e] <= t < offsets[e + 1]``.

    Source:
        Gale et al. 2022, MegaBlocks (arXiv:2211.15841). The arguments are those of
        ``torch.nn.functional.grouped_mm(x, weight, offs=offsets[1:])``.
    """
    rows = x.split(offsets.diff().tolist())
    products = [part @ own for part, own in zip(rows, weight, strict=True)]
    return torch.cat(products) if products else x.new_zeros(0, weight.shape[2])


@opsmith.op(
    "llm::grouped_linear_backward",
    autograd="reference",
    parallel_dims=("K",),
    summed_dims=("N",),
    linear_in=("grad",),
)
def grouped_linear_backward(
    grad: Float[Tensor, "T N"],
    x: Annotated[Float[Tensor, "T K"], Unspecified(nan=True, inf=True)],
    weight: Annotated[Float[Tensor, "E K N"], Unspecified(nan=True, inf=True)],
    offsets: Annotated[Int32[Tensor, "E+1"], Sorted(first=0, last="T")],
) -> tuple[Float[Tensor, "T K"], Float[Tensor, "E K N"]]:
    """Give the gradients of `grouped_linear` with respect to `x` and `weight`.

    Args:
        grad: the gradient of the result.
        x: as `grouped_linear` has it, and so the others.
        weight: see `x`.
        offsets: see `x`.

    Returns:
        The gradient of `x`, and the gradient of `weight`: zeros for an expert without rows.
    """
    lengths = offsets.diff().tolist()
    of_x, of_weight = [x.new_zeros(0, x.shape[1])], [weight.new_zeros(0, *weight.shape[1:])]
    for part, rows, own in zip(grad.split(lengths), x.split(lengths), weight, strict=True):
        of_x.append(part @ own.t())
        of_weight.append((rows.t() @ part).unsqueeze(0))
    return torch.cat(of_x), torch.cat(of_weight)


grouped_linear.register_kernel("cpu", source="grouped_linear.cpp", strided=("weight",))
grouped_linear_backward.register_kernel("cpu", source="grouped_linear.cpp", strided=("weight",))
grouped_linear.register_kernel("cuda", source="grouped_linear.cu", strided=("weight",))
grouped_linear_backward.register_kernel("cuda", source="grouped_linear.cu", strided=("weight",))
grouped_linear.register_backward(grouped_linear_backward, grads={"x": 0, "weight": 1})


@grouped_linear.register_cases
def _cases(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    generator = torch.Generator().manual_seed(seed)
    # Experts without rows at the begin, between and at the end, none at all, one of all rows; more
    # rows, columns and elements than a block has, and sizes that fill no tile.
    for lengths, k, n in (
        ([0, 3, 0, 5, 1, 0], 7, 9),
        ([], 4, 3),
        ([0, 0], 5, 6),
        ([230], 20, 40),
        ([17, 130, 2], 33, 270),
        ([3, 4], 300, 33),
        ([2, 2], 1, 1),
    ):
        weight = torch.randn(len(lengths), k, n, generator=generator) / k**0.5
        yield {
            "x": torch.randn(sum(lengths), k, generator=generator).to(dtype),
            "weight": weight.to(dtype),
            "offsets": torch.tensor([0, *lengths], dtype=torch.int32).cumsum(0).int(),
        }


@grouped_linear_backward.register_cases
def _backward_cases(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    generator = torch.Generator().manual_seed(seed + 1)
    for case in _cases(dtype, seed):
        grad = torch.randn(case["x"].shape[0], case["weight"].shape[2], generator=generator)
        yield {"grad": grad.to(dtype), **case}
