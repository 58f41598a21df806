"""Top-k gating of a mixture of experts, with the tokens in the order of their experts."""

from typing import Annotated

import torch
from jaxtyping import Float, Int32
from torch import Tensor

import opsmith
from opsmith import Between, Selects, Unspecified


# The choices are numbered in 32 bits.
@opsmith.op("today::gating", autograd="reference", where=("T*k < 2147483648",))
def gating(
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
        logits: the router's output for each token and expert.
        k: the number of experts for each token.

    Returns:
        The weights of each token's experts, which add up to 1. The experts, the best first; of
        equal ones, the one with the lower number. Where each expert's choices begin in the sorted
        order, and their number at the end. The choices (token times k plus rank) in that order.

    Source:
        Shazeer et al., "Outrageously large neural networks", 2017; Gale et al., "MegaBlocks", 2022.
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


gating.register_kernel("cpu", source="gating.cpp")
