"""`flash_attention` is PyTorch's attention, with its gradients, for ragged batches too."""

import pytest
import torch
from torch.nn import functional

from gallery.flash_attention.flash_attention import (
    flash_attention,
    flash_attention_backward,
    flash_attention_varlen,
    flash_attention_varlen_backward,
)


@pytest.mark.parametrize("causal", [False, True])
def test_the_references_are_pytorchs_attention_and_its_gradients(causal: bool) -> None:
    shapes = (2, 5, 6, 4), (2, 5, 2, 4), (2, 5, 2, 3)
    leaves = [torch.randn(one, dtype=torch.float64, requires_grad=True) for one in shapes]
    heads_first = [one.transpose(1, 2) for one in leaves]
    expected = functional.scaled_dot_product_attention(
        *heads_first, is_causal=causal, scale=0.3, enable_gqa=True
    ).transpose(1, 2)
    given = [one.detach() for one in leaves]
    out, logsumexp = flash_attention.reference(*given, 0.3, causal)
    torch.testing.assert_close(out, expected)
    keys = given[1].repeat_interleave(3, dim=2)
    scores = torch.einsum("bthd,bshd->bths", given[0], keys) * 0.3
    if causal:
        hidden = torch.arange(5) > torch.arange(5)[:, None]
        scores = scores.masked_fill(hidden[None, :, None], -torch.inf)
    torch.testing.assert_close(logsumexp, scores.logsumexp(-1))
    grad = torch.randn_like(out)
    wanted = torch.autograd.grad(expected, leaves, grad)
    zeros = torch.zeros_like(logsumexp)
    found = flash_attention_backward.reference(grad, zeros, *given, out, 0.3, causal)
    torch.testing.assert_close(found, wanted)


@pytest.mark.parametrize("causal", [False, True])
def test_sequences_behind_one_another_are_attended_to_one_by_one(causal: bool) -> None:
    lengths = [(3, 5), (0, 2), (4, 1), (2, 0)]  # queries that see no key, too
    offsets = [torch.tensor([0, *one]).cumsum(0).int() for one in zip(*lengths, strict=True)]
    query, key = torch.randn(9, 4, 3).double(), torch.randn(8, 2, 3).double()
    value, grad = torch.randn(8, 2, 5).double(), torch.randn(9, 4, 5).double()
    out, logsumexp = flash_attention_varlen.reference(query, key, value, *offsets, 0.7, causal)
    more = torch.randn_like(logsumexp)
    arguments = grad, more, query, key, value, out, *offsets, 0.7, causal
    grads = flash_attention_varlen_backward.reference(*arguments)
    for place in range(len(lengths)):
        q, k = (slice(int(one[place]), int(one[place + 1])) for one in offsets)
        own = query[q][None], key[k][None], value[k][None]
        results = flash_attention.reference(*own, 0.7, causal)
        torch.testing.assert_close((out[q][None], logsumexp[q][None]), results)
        backward = flash_attention_backward.reference(
            grad[q][None], more[q][None], *own, results[0], 0.7, causal
        )
        parts = grads[0][q][None], grads[1][k][None], grads[2][k][None]
        torch.testing.assert_close(parts, backward)


def test_a_query_that_sees_no_key_has_no_result_and_gives_no_gradient() -> None:
    leaves = [torch.randn(1, size, 1, 2, requires_grad=True) for size in (3, 1, 1)]
    out, logsumexp = flash_attention.reference(*leaves, 1.0, True)
    assert out[0, :2].eq(0).all()
    assert logsumexp.flatten().tolist()[:2] == [-torch.inf, -torch.inf]
    grads = torch.autograd.grad(out.sum() + logsumexp[0, 2].sum(), leaves)
    assert all(bool(one.isfinite().all()) for one in grads)
    assert grads[0][0, :2].eq(0).all()
