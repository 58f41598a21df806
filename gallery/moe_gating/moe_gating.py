"""`llm::moe_gating`: top-k gating of a mixture of experts, its choices sorted by expert."""

from collections.abc import Iterator
from typing import Annotated, Any

import torch
from jaxtyping import Float, Int32
from torch import Tensor

import opsmith
from opsmith import Between, Selects, Unspecified


# The choices are numbered in 32 bits.
@opsmith.op("llm::moe_gating", autograd="reference", where=("T*k < 2147483648",))
def moe_gating(
    logits: Annotated[Float[Tensor, "T E"], Unspecified(nan=True, inf=True)],
    k: Annotated[int, Between(1, "E")],
) -> tuple[
    Float[Tensor, "T {k}"],
    Annotated[Int32[Tensor, "T {k}"], Selects("logits")],
    Int32[Tensor, "E+1"],
    Int32[Tensor, "T*{k}"],
]:
    """Choose k experts for each token, and sort the choices by expert.

    Args:
        logits: the router's output for each of T tokens and E experts.
        k: the number of experts for each token.

    Returns:
        The weights of each token's experts, which add up to 1: softmax over those that are chosen.
        The experts, the best first; of equal ones, the one with the lower number. Where each
        expert's choices begin in the sorted order, and their number at the end. The choices (token
        times k plus rank) in that order, those of an expert in the order of the tokens.

    Source:
        Shazeer et al. 2017, Outrageously Large Neural Networks (arXiv:1701.06538); Gale et al.
        2022, MegaBlocks (arXiv:2211.15841).
    """
    values, order = logits.sort(dim=1, descending=True, stable=True)
    experts = order[:, :k]
    flat = experts.reshape(-1)
    counts = torch.zeros(logits.shape[1], dtype=torch.int64, device=logits.device)
    counts = counts.index_add(0, flat, torch.ones_like(flat))
    offsets = torch.nn.functional.pad(counts.cumsum(0), (1, 0))
    choices = flat.argsort(stable=True)
    weights = values[:, :k].softmax(1)
    return weights, experts.int(), offsets.int(), choices.int()


moe_gating.register_kernel("cpu", source="moe_gating.cpp")
moe_gating.register_kernel("cuda", source="moe_gating.cu")


@moe_gating.register_cases
def _cases(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    generator = torch.Generator().manual_seed(seed)
    # More experts than a warp has lanes, one expert, all experts, no tokens; some are equal.
    for tokens, experts, k in ((9, 64, 6), (5, 1, 1), (7, 8, 8), (0, 8, 2), (300, 8, 2)):
        yield {"logits": torch.randn(tokens, experts, generator=generator).to(dtype), "k": k}
    yield {"logits": torch.randint(3, (20, 40), generator=generator).to(dtype), "k": 4}
