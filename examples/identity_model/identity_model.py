"""A model that changes nothing: convolution, custom class, custom operator, convolution again."""

from __future__ import annotations

import torch
from jaxtyping import Float
from torch import Tensor, nn

import opsmith


@opsmith.custom_class("my_ops::IdentityConvClass")
class IdentityConvClass:
    """Gives its argument back, if it has the right number of channels."""

    channels: int

    @opsmith.method(autograd="reference")
    def forward(self, x: Float[Tensor, "N {channels} H W"]) -> Float[Tensor, "N {channels} H W"]:
        """Give a copy of `x`."""
        return x.clone()

    def get_channels(self) -> int:
        """How many channels `forward` takes."""
        return self.channels


IdentityConvClass.forward.register_kernel("cpu", source="identity_class.cpp")
IdentityConvClass.forward.register_kernel("cuda", source="identity_class.cu")


@opsmith.op("my_ops::identity_conv_op", parallel_dims=("*shape",), autograd="reference")
def identity_conv_op(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    """Give a copy of the argument."""
    return x.clone()


identity_conv_op.register_kernel("cpu", source="identity_conv_op.cpp")
identity_conv_op.register_kernel("cuda", source="identity_conv_op.cu")


class IdentityModel(nn.Module):
    """Its output equals its input, bit for bit.

    Args:
        channels: of the images, N C H W.
    """

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(channels, channels, kernel_size=1, groups=channels, bias=False)
        nn.init.ones_(self.conv.weight)
        self.identity = torch.classes.my_ops.IdentityConvClass(channels)

    def forward(self, x: Tensor) -> Tensor:
        """Pass `x` through all four."""
        return self.conv(identity_conv_op(self.identity.forward(self.conv(x))))
