"""`llm::flash_attention`: attention without a matrix of all scores, and for ragged batches."""

from collections.abc import Iterator
from typing import Annotated, Any

import torch
from jaxtyping import Float, Int32
from torch import Tensor

import opsmith
from opsmith import Sorted, Unspecified


@opsmith.op("llm::flash_attention", parallel_dims=("B",), batch_invariant=("B",))
def flash_attention(
    query: Annotated[Float[Tensor, "B T K*G D"], Unspecified(nan=True, inf=True)],
    key: Annotated[Float[Tensor, "B S K D"], Unspecified(nan=True, inf=True)],
    value: Annotated[Float[Tensor, "B S K E"], Unspecified(nan=True, inf=True)],
    scale: float,
    causal: bool = False,
) -> tuple[Float[Tensor, "B T K*G E"], Float[Tensor, "B T K*G"]]:
    """Attend to the keys of each sequence: G heads of queries share one head of keys and values.

    Args:
        query: T queries of each of B sequences, in K times G heads.
        key: S keys of each sequence, in K heads.
        value: a value of E elements for each key.
        scale: the factor of the scores, most often ``D ** -0.5``.
        causal: whether a query sees only keys up to its own place, where the last query stands at
            the last key; otherwise it sees all.

    Returns:
        The mean of the values that a query sees, weighted by ``softmax(scale * query @ key)``, and
        the logarithm of the sum of the exponentials of its scores: 0 and minus infinity where a
        query sees none.

    Source:
        Dao 2023, FlashAttention-2 (arXiv:2307.08691), algorithm 1; Ainslie et al. 2023, GQA
        (arXiv:2305.13245).
    """
    return _attended(query, key, value, scale, _visible(query, key, causal))


@opsmith.op("llm::flash_attention_backward", autograd="reference", parallel_dims=("B",))
def flash_attention_backward(
    grad_out0: Annotated[Float[Tensor, "B T K*G E"], Unspecified(nan=True, inf=True)],
    grad_out1: Annotated[Float[Tensor, "B T K*G"], Unspecified(nan=True, inf=True)],
    query: Annotated[Float[Tensor, "B T K*G D"], Unspecified(nan=True, inf=True)],
    key: Annotated[Float[Tensor, "B S K D"], Unspecified(nan=True, inf=True)],
    value: Annotated[Float[Tensor, "B S K E"], Unspecified(nan=True, inf=True)],
    result_out0: Annotated[Float[Tensor, "B T K*G E"], Unspecified(nan=True, inf=True)],
    scale: float,
    causal: bool = False,
) -> tuple[Float[Tensor, "B T K*G D"], Float[Tensor, "B S K D"], Float[Tensor, "B S K E"]]:
    """Give the gradients of `flash_attention` with respect to `query`, `key` and `value`.

    Args:
        grad_out0: the gradient of the means.
        grad_out1: the gradient of the logarithms.
        query: as `flash_attention` has it, and so the others.
        key: see `query`.
        value: see `query`.
        result_out0: the means that `flash_attention` gave.
        scale: see `query`.
        causal: see `query`.

    Returns:
        The gradients of `query`, `key` and `value`.

    Source:
        Algorithm 2 of the same paper.
    """
    grads, visible = (grad_out0, grad_out1), _visible(query, key, causal)
    return _gradients(grads, query, key, value, result_out0, scale, visible)


@opsmith.op("llm::flash_attention_varlen")
def flash_attention_varlen(
    query: Annotated[Float[Tensor, "N K*G D"], Unspecified(nan=True, inf=True)],
    key: Annotated[Float[Tensor, "M K D"], Unspecified(nan=True, inf=True)],
    value: Annotated[Float[Tensor, "M K E"], Unspecified(nan=True, inf=True)],
    query_offsets: Annotated[Int32[Tensor, "R+1"], Sorted(first=0, last="N")],
    key_offsets: Annotated[Int32[Tensor, "R+1"], Sorted(first=0, last="M")],
    scale: float,
    causal: bool = False,
) -> tuple[Float[Tensor, "N K*G E"], Float[Tensor, "N K*G"]]:
    """Attend as `flash_attention` does, to sequences of any length behind one another.

    Args:
        query: the queries of R sequences, N together.
        key: their keys, M together.
        value: a value of E elements for each key.
        query_offsets: where the queries of each sequence begin, and N at the end ("cu_seqlens").
        key_offsets: where its keys begin, and M at the end.
        scale: as `flash_attention` has it.
        causal: as `flash_attention` has it, within each sequence.

    Returns:
        As `flash_attention`.

    Source:
        ``flash_attn_varlen_func`` of FlashAttention-2 (arXiv:2307.08691).
    """
    visible = _visible_between(query, key, query_offsets, key_offsets, causal)
    out, logsumexp = _attended(query[None], key[None], value[None], scale, visible)
    return out.squeeze(0), logsumexp.squeeze(0)


@opsmith.op("llm::flash_attention_varlen_backward", autograd="reference")
def flash_attention_varlen_backward(
    grad_out0: Annotated[Float[Tensor, "N K*G E"], Unspecified(nan=True, inf=True)],
    grad_out1: Annotated[Float[Tensor, "N K*G"], Unspecified(nan=True, inf=True)],
    query: Annotated[Float[Tensor, "N K*G D"], Unspecified(nan=True, inf=True)],
    key: Annotated[Float[Tensor, "M K D"], Unspecified(nan=True, inf=True)],
    value: Annotated[Float[Tensor, "M K E"], Unspecified(nan=True, inf=True)],
    result_out0: Annotated[Float[Tensor, "N K*G E"], Unspecified(nan=True, inf=True)],
    query_offsets: Annotated[Int32[Tensor, "R+1"], Sorted(first=0, last="N")],
    key_offsets: Annotated[Int32[Tensor, "R+1"], Sorted(first=0, last="M")],
    scale: float,
    causal: bool = False,
) -> tuple[Float[Tensor, "N K*G D"], Float[Tensor, "M K D"], Float[Tensor, "M K E"]]:
    """Give the gradients of `flash_attention_varlen` with respect to `query`, `key` and `value`.

    Args:
        grad_out0: as `flash_attention_backward` has it.
        grad_out1: as `flash_attention_backward` has it.
        query: as `flash_attention_varlen` has it, and so the others.
        key: see `query`.
        value: see `query`.
        result_out0: as `flash_attention_backward` has it.
        query_offsets: see `query`.
        key_offsets: see `query`.
        scale: see `query`.
        causal: see `query`.

    Returns:
        The gradients of `query`, `key` and `value`.
    """
    visible = _visible_between(query, key, query_offsets, key_offsets, causal)
    grads = grad_out0[None], grad_out1[None]
    out = result_out0[None]
    found = _gradients(grads, query[None], key[None], value[None], out, scale, visible)
    return found[0].squeeze(0), found[1].squeeze(0), found[2].squeeze(0)


def _visible(query: Tensor, key: Tensor, causal: bool) -> Tensor:
    """Tell of each query and key whether the one sees the other."""
    queries, keys = query.shape[1], key.shape[1]
    visible = torch.ones(queries, keys, dtype=torch.bool, device=query.device)
    return visible.tril(keys - queries) if causal else visible


def _visible_between(
    query: Tensor, key: Tensor, query_offsets: Tensor, key_offsets: Tensor, causal: bool
) -> Tensor:
    """Tell the same of sequences behind one another."""

    def places(tokens: Tensor, offsets: Tensor) -> tuple[Tensor, Tensor]:
        """Give the sequence of each token, and its distance from the sequence's end."""
        place = torch.arange(tokens.shape[0], dtype=offsets.dtype, device=tokens.device)
        sequence = torch.searchsorted(offsets[1:].contiguous(), place, right=True)
        return sequence, offsets[sequence + 1] - place

    sequence, left = places(query, query_offsets)
    other, other_left = places(key, key_offsets)
    same = sequence[:, None] == other
    return same & (left[:, None] <= other_left) if causal else same


def _scores(query: Tensor, key: Tensor, scale: float) -> Tensor:
    """Give the scores (B, K, G, T, S); those of half types in float32."""
    grouped = query.unflatten(2, (key.shape[2], query.shape[2] // key.shape[2]))
    return torch.einsum("btkgd,bskd->bkgts", _wide(grouped), _wide(key)) * scale


def _wide(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _shares(query: Tensor, key: Tensor, scale: float, visible: Tensor) -> tuple[Tensor, Tensor]:
    """Give the scores, masked, and their softmax."""
    # A query that sees nothing has no mask, so that its scores, which nobody reads, are finite.
    hidden = ~visible & visible.any(1, keepdim=True)
    scores = _scores(query, key, scale).masked_fill(hidden, -torch.inf)
    return scores, scores.softmax(-1).masked_fill(~visible, 0)


def _attended(
    query: Tensor, key: Tensor, value: Tensor, scale: float, visible: Tensor
) -> tuple[Tensor, Tensor]:
    scores, shares = _shares(query, key, scale, visible)
    out = torch.einsum("bkgts,bske->btkge", shares, _wide(value)).flatten(2, 3)
    logsumexp = scores.logsumexp(-1).masked_fill(~visible.any(1), -torch.inf)
    return out.to(query.dtype), logsumexp.movedim(3, 1).flatten(2).to(query.dtype)


def _gradients(
    grads: tuple[Tensor, Tensor],
    query: Tensor,
    key: Tensor,
    value: Tensor,
    result: Tensor,
    scale: float,
    visible: Tensor,
) -> tuple[Tensor, Tensor, Tensor]:
    groups = (key.shape[2], query.shape[2] // key.shape[2])

    def grouped(of_queries: Tensor) -> Tensor:
        """Give what each query has as (B, K, G, T, ...), in the scores' precision."""
        return _wide(of_queries).unflatten(2, groups).movedim(1, 3)

    grad = grouped(grads[0])
    _, shares = _shares(query, key, scale, visible)
    offset = (grad * grouped(result)).sum(-1) - grouped(grads[1])
    slopes = torch.einsum("bkgte,bske->bkgts", grad, _wide(value)) - offset.unsqueeze(-1)
    slopes = shares * slopes * scale
    of_query = torch.einsum("bkgts,bskd->btkgd", slopes, _wide(key)).flatten(2, 3)
    of_key = torch.einsum("bkgts,bkgtd->bskd", slopes, grouped(query))
    of_value = torch.einsum("bkgts,bkgte->bske", shares, grad)
    return of_query.to(query.dtype), of_key.to(query.dtype), of_value.to(query.dtype)


# GCC makes vectors of loops with `exp_of` where no comparison of floats may trap.
FLAGS = ("-fno-trapping-math",)
for _operator in (
    flash_attention,
    flash_attention_backward,
    flash_attention_varlen,
    flash_attention_varlen_backward,
):
    _operator.register_kernel("cpu", source="flash_attention.cpp", flags=FLAGS)
    _operator.register_kernel("cuda", source="flash_attention.cu")
_GRADS = {"query": 0, "key": 1, "value": 2}
flash_attention.register_backward(flash_attention_backward, grads=_GRADS)
flash_attention_varlen.register_backward(flash_attention_varlen_backward, grads=_GRADS)


@flash_attention.register_cases
def _cases(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    generator = torch.Generator().manual_seed(seed)
    # B, T, S, K, G, D, E: more rows than a block, more keys than a tile, more columns than a
    # block has in CUDA; one query; queries that see nothing; no keys.
    for b, t, s, k, g, d, e in (
        (2, 5, 5, 2, 3, 8, 8),
        (1, 60, 260, 1, 2, 4, 7),
        (1, 2, 35, 1, 2, 33, 133),
        (2, 1, 35, 2, 2, 4, 4),
        (1, 6, 3, 1, 2, 5, 3),
        (1, 2, 0, 1, 1, 3, 3),
    ):
        sizes = (b, t, k * g, d), (b, s, k, d), (b, s, k, e)
        query, key, value = (torch.randn(size, generator=generator).to(dtype) for size in sizes)
        for causal in (False, True):
            tensors = {"query": query, "key": key, "value": value}
            yield {**tensors, "scale": d**-0.5, "causal": causal}


@flash_attention_varlen.register_cases
def _varlen_cases(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    generator = torch.Generator().manual_seed(seed + 1)
    # Sequences without queries, without keys, with fewer of these; one alone; none.
    for queries, keys in (
        ([4, 0, 7, 1, 3], [4, 2, 3, 40, 0]),
        ([60], [133]),
        ([1, 1, 1], [9, 33, 1]),
        ([], []),
    ):
        sizes = (sum(queries), 4, 6), (sum(keys), 2, 6), (sum(keys), 2, 5)
        query, key, value = (torch.randn(size, generator=generator).to(dtype) for size in sizes)
        for causal in (False, True):
            yield {
                "query": query,
                "key": key,
                "value": value,
                "query_offsets": torch.tensor([0, *queries]).cumsum(0).int(),
                "key_offsets": torch.tensor([0, *keys]).cumsum(0).int(),
                "scale": 6**-0.5,
                "causal": causal,
            }


def _backward_cases(
    operator: opsmith.Operator, cases: Iterator[dict[str, Any]], seed: int
) -> Iterator[dict[str, Any]]:
    generator = torch.Generator().manual_seed(seed + 2)
    for case in cases:
        results = operator.reference(**case)
        grads = [torch.randn(one.shape, generator=generator).to(one.dtype) for one in results]
        yield {
            **{f"grad_out{place}": grad for place, grad in enumerate(grads)},
            "result_out0": results[0],
            **case,
        }


@flash_attention_backward.register_cases
def _of_one_length(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    return _backward_cases(flash_attention, _cases(dtype, seed), seed)


@flash_attention_varlen_backward.register_cases
def _of_any_length(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    return _backward_cases(flash_attention_varlen, _varlen_cases(dtype, seed), seed)
