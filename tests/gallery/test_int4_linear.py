"""`int4_linear` multiplies by the weights that the bits and the scales stand for."""

import torch

from gallery.int4_linear.int4_linear import int4_linear


def test_a_linear_layer_of_four_bits_multiplies_by_the_weights_unpacked() -> None:
    weight = torch.randint(-8, 8, (5, 12))
    scales, x = torch.rand(5, 3), torch.randn(2, 12)
    packed = ((weight[:, 0::2] + 8) | (weight[:, 1::2] + 8) << 4).to(torch.uint8)
    expected = x @ (weight * scales.repeat_interleave(4, 1)).T
    torch.testing.assert_close(int4_linear.reference(x, packed, scales), expected)
