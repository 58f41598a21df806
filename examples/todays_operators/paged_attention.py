"""Attention of one new token for each sequence over a cache in pages, in groups of heads."""

from typing import Annotated

import torch
from jaxtyping import Float, Int32
from torch import Tensor

import opsmith
from opsmith import Between, Index


@opsmith.op("today::paged_attention", parallel_dims=("S",))
def paged_attention(
    query: Float[Tensor, "S K*G D"],
    keys: Float[Tensor, "P L K D"],
    values: Float[Tensor, "P L K D"],
    pages: Annotated[Int32[Tensor, "S M"], Index("P")],
    lengths: Annotated[Int32[Tensor, "S"], Between(1, "M*L")],
    scale: float = 1.0,
) -> Float[Tensor, "S K*G D"]:
    """Attend to the tokens of each sequence: G heads of queries share one head of keys and values.

    Args:
        query: the queries of S sequences.
        keys: P pages of L tokens, with K heads.
        values: the same for the values.
        pages: the pages of each sequence, in order.
        lengths: the number of tokens of each sequence.
        scale: the factor of the scores.

    Source:
        Kwon et al., "Efficient memory management for large language model serving with
        PagedAttention", 2023; Ainslie et al., "GQA", 2023.
    """
    heads, width = keys.shape[2:]
    there = torch.arange(pages.shape[1] * keys.shape[1], device=query.device) < lengths[:, None]

    def own(cache: Tensor) -> Tensor:
        # A page's slots behind a sequence's last token belong to no sequence, and may hold NaN.
        tokens = cache[pages].reshape(*there.shape, heads, width)
        return torch.where(there[:, :, None, None], tokens, 0)

    grouped = query.unflatten(1, (heads, query.shape[1] // heads))
    scores = torch.einsum("skgd,stkd->skgt", grouped, own(keys)) * scale
    weights = scores.masked_fill(~there[:, None, None], -torch.inf).softmax(-1)
    return torch.einsum("skgt,stkd->skgd", weights, own(values)).reshape(query.shape)


paged_attention.register_kernel("cpu", source="paged_attention.cpp")
