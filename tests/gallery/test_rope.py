"""`rope` turns each pair by its angle: as a product with complex numbers does."""

import pytest
import torch
from torch import Tensor

from gallery.rope.rope import rope, rope_backward, tables


def as_pairs(x: Tensor, interleaved: bool) -> Tensor:
    pairs = x.unflatten(-1, (-1, 2)) if interleaved else x.unflatten(-1, (2, -1)).transpose(-1, -2)
    return torch.view_as_complex(pairs.contiguous())


@pytest.mark.parametrize("interleaved", [False, True])
def test_the_references_multiply_by_complex_numbers_and_back(interleaved: bool) -> None:
    x = torch.randn(5, 3, 8, dtype=torch.float64)
    positions = torch.tensor([0, 7, 7, 2, 9])
    cos, sin = tables(10, 4, dtype=torch.float64)
    turned = rope.reference(x, positions, cos, sin, interleaved)
    angles = positions[:, None] * 10000.0 ** (-torch.arange(4, dtype=torch.float64) / 4)
    expected = as_pairs(x, interleaved) * torch.polar(torch.ones_like(angles), angles)[:, None]
    torch.testing.assert_close(as_pairs(turned, interleaved), expected)
    torch.testing.assert_close(rope_backward.reference(turned, positions, cos, sin, interleaved), x)
