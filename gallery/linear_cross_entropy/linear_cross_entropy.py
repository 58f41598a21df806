"""`llm::linear_cross_entropy`: the last layer of a language model with its loss, without logits."""

from collections.abc import Iterator
from typing import Annotated, Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor

import opsmith
from opsmith import Index, Unspecified


@opsmith.op("llm::linear_cross_entropy", parallel_dims=("N",))
def linear_cross_entropy(
    hidden: Annotated[Float[Tensor, "N C"], Unspecified(nan=True, inf=True)],
    weight: Annotated[Float[Tensor, "V C"], Unspecified(nan=True, inf=True)],
    targets: Annotated[Int64[Tensor, "N"], Index("V")],
) -> Float[Tensor, "N"]:
    """Give the cross entropy of each token, of the logits ``hidden @ weight.T``.

    Args:
        hidden: what the last layer gives, C elements for each of N tokens.
        weight: C elements for each of V words.
        targets: the word that each token should be.

    Returns:
        The loss of each token: the logarithm of the sum of the exponentials of its logits, less
        the logit of its target.

    Source:
        Wijmans et al. 2024, Cut Your Losses in Large-Vocabulary Language Models
        (arXiv:2411.09009): the logits of a part of the words at a time, never all of them.
    """
    logits = hidden @ weight.t()
    return logits.logsumexp(1) - logits.gather(1, targets.unsqueeze(1)).squeeze(1)


@opsmith.op("llm::linear_cross_entropy_backward", autograd="reference")
def linear_cross_entropy_backward(
    grad: Float[Tensor, "N"],
    hidden: Annotated[Float[Tensor, "N C"], Unspecified(nan=True, inf=True)],
    weight: Annotated[Float[Tensor, "V C"], Unspecified(nan=True, inf=True)],
    targets: Annotated[Int64[Tensor, "N"], Index("V")],
) -> tuple[Float[Tensor, "N C"], Float[Tensor, "V C"]]:
    """Give the gradients of `linear_cross_entropy` with respect to `hidden` and `weight`.

    Args:
        grad: the gradient of each token's loss.
        hidden: as `linear_cross_entropy` has it, and so the others.
        weight: see `hidden`.
        targets: see `hidden`.

    Returns:
        The gradient of `hidden` and the gradient of `weight`.
    """
    shares = (hidden @ weight.t()).softmax(1)
    is_target = torch.arange(weight.shape[0], device=targets.device) == targets.unsqueeze(1)
    slopes = (shares - is_target.to(shares.dtype)) * grad.unsqueeze(1)
    return slopes @ weight, slopes.t() @ hidden


# GCC makes vectors of loops with `exp_of` where no comparison of floats may trap.
FLAGS = ("-fno-trapping-math",)
linear_cross_entropy.register_kernel("cpu", source="linear_cross_entropy.cpp", flags=FLAGS)
linear_cross_entropy_backward.register_kernel("cpu", source="linear_cross_entropy.cpp", flags=FLAGS)
linear_cross_entropy.register_backward(
    linear_cross_entropy_backward, grads={"hidden": 0, "weight": 1}
)


@linear_cross_entropy.register_cases
def _cases(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    generator = torch.Generator().manual_seed(seed)
    # Fewer tokens and words than a block, more, more elements than a block is deep; no tokens.
    for tokens, words, columns in ((3, 5, 7), (7, 300, 20), (130, 40, 16), (4, 9, 300), (0, 4, 3)):
        yield {
            "hidden": torch.randn(tokens, columns, generator=generator).to(dtype),
            "weight": (torch.randn(words, columns, generator=generator) / columns**0.5).to(dtype),
            "targets": torch.randint(words, (tokens,), generator=generator),
        }


@linear_cross_entropy_backward.register_cases
def _backward_cases(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    generator = torch.Generator().manual_seed(seed + 1)
    for case in _cases(dtype, seed):
        grad = torch.randn(case["targets"].shape, generator=generator)
        yield {"grad": grad.to(dtype), **case}
