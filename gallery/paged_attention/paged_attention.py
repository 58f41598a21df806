"""`llm::paged_attention`: attention of one new token for each sequence over a cache in pages."""

from collections.abc import Iterator
from typing import Annotated, Any

import torch
from jaxtyping import Float, Int32
from torch import Tensor

import opsmith
from opsmith import Between, Index


@opsmith.op("llm::paged_attention", parallel_dims=("S",), batch_invariant=("S",))
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
        scale: the factor of the scores, most often ``D ** -0.5``.

    Returns:
        The mean of the values of each sequence's tokens, weighted by the softmax of their scores.

    Source:
        Kwon et al. 2023, Efficient Memory Management for Large Language Model Serving with
        PagedAttention (arXiv:2309.06180); Ainslie et al. 2023, GQA (arXiv:2305.13245).
    """
    heads, width = keys.shape[2:]
    there = torch.arange(pages.shape[1] * keys.shape[1], device=query.device) < lengths[:, None]
    wide = torch.promote_types(query.dtype, torch.float32)

    def own(cache: Tensor) -> Tensor:
        # A page's slots behind a sequence's last token belong to no sequence, and may hold NaN.
        tokens = cache[pages].reshape(*there.shape, heads, width).to(wide)
        return torch.where(there[:, :, None, None], tokens, 0)

    grouped = query.unflatten(1, (heads, query.shape[1] // heads)).to(wide)
    scores = torch.einsum("skgd,stkd->skgt", grouped, own(keys)) * scale
    weights = scores.masked_fill(~there[:, None, None], -torch.inf).softmax(-1)
    out = torch.einsum("skgt,stkd->skgd", weights, own(values)).reshape(query.shape)
    return out.to(query.dtype)


# GCC makes vectors of loops with `exp_of` where no comparison of floats may trap.
paged_attention.register_kernel("cpu", source="paged_attention.cpp", flags=("-fno-trapping-math",))
paged_attention.register_kernel("cuda", source="paged_attention.cu")


@paged_attention.register_cases
def _cases(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    generator = torch.Generator().manual_seed(seed)
    # S, K, G, D, P, L, M: a page that several sequences have, rows with a rest, more columns than
    # a warp adds up, one token in each page.
    for s, k, g, d, p, slots, m in (
        (3, 2, 3, 8, 5, 4, 3),
        (2, 1, 2, 149, 3, 16, 2),
        (1, 2, 1, 5, 9, 1, 260),
    ):
        query = torch.randn(s, k * g, d, generator=generator).to(dtype)
        keys, values = torch.randn(2, p, slots, k, d, generator=generator).to(dtype)
        lengths = torch.randint(1, m * slots + 1, (s,), generator=generator).int()
        lengths[0] = m * slots
        pages = torch.randint(p, (s, m), generator=generator).int()
        yield {
            "query": query,
            "keys": keys,
            "values": values,
            "pages": pages,
            "lengths": lengths,
            "scale": d**-0.5,
        }
