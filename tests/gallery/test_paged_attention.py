"""`paged_attention` is PyTorch's attention over the tokens of each sequence's pages."""

import torch
from torch.nn import functional

from gallery.paged_attention.paged_attention import paged_attention


def test_paged_attention_is_attention_over_the_tokens_of_the_pages() -> None:
    query = torch.randn(2, 6, 4)
    cache = torch.randn(2, 5, 3, 2, 4)
    pages, lengths = torch.tensor([[4, 0, 2], [1, 1, 3]]), torch.tensor([7, 2])
    found = paged_attention.reference(query, *cache, pages, lengths, scale=0.5)
    for sequence, length in enumerate(lengths.tolist()):
        keys, values = (
            one[pages[sequence]].reshape(9, 2, 4)[:length].transpose(0, 1) for one in cache
        )
        expected = functional.scaled_dot_product_attention(
            query[sequence][:, None], keys, values, scale=0.5, enable_gqa=True
        )
        torch.testing.assert_close(found[sequence], expected[:, 0])
