"""`DeformConv2d` and `deform_conv2d`, called as torchvision's layer and function are."""

import math

import torch
from torch import Tensor, nn

from .deform_conv2d import deform_conv2d as operator


def _pair(value: int | tuple[int, int]) -> tuple[int, int]:
    return (value, value) if isinstance(value, int) else (value[0], value[1])


def deform_conv2d(
    input: Tensor,
    offset: Tensor,
    weight: Tensor,
    bias: Tensor | None = None,
    stride: int | tuple[int, int] = 1,
    padding: int | tuple[int, int] = 0,
    dilation: int | tuple[int, int] = 1,
    mask: Tensor | None = None,
) -> Tensor:
    """Convolve, with one number where both directions have the same; see the operator.

    Args:
        input: the images (N, C, H, W).
        offset: see `DeformConv2d.forward`.
        weight: (M, C / groups, kernel height, kernel width).
        bias: (M,).
        stride: down and right, and so the next two.
        padding: rows and columns of zeros around the image.
        dilation: pixels between taps.
        mask: see `DeformConv2d.forward`.
    """
    steps = (_pair(stride), _pair(padding), _pair(dilation))
    return operator(input, offset, weight, bias, *steps, mask)


class DeformConv2d(nn.Module):
    """Deformable convolution with a weight and a bias; ``torch.jit.script`` takes it too.

    Args:
        in_channels: of the images.
        out_channels: of the result.
        kernel_size: height and width, or one number for both, and so the next three.
        stride: see `deform_conv2d`.
        padding: see `deform_conv2d`.
        dilation: see `deform_conv2d`.
        groups: into how many groups the channels are divided.
        bias: whether to learn one.

    Raises:
        ValueError: `groups` divides not both numbers of channels.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        kernel_size: int | tuple[int, int],
        stride: int | tuple[int, int] = 1,
        padding: int | tuple[int, int] = 0,
        dilation: int | tuple[int, int] = 1,
        groups: int = 1,
        bias: bool = True,
    ) -> None:
        super().__init__()
        if in_channels % groups != 0:
            raise ValueError("in_channels must be divisible by groups")
        if out_channels % groups != 0:
            raise ValueError("out_channels must be divisible by groups")
        self.in_channels = in_channels
        self.out_channels = out_channels
        self.kernel_size = _pair(kernel_size)
        self.stride = _pair(stride)
        self.padding = _pair(padding)
        self.dilation = _pair(dilation)
        self.groups = groups
        self.weight = nn.Parameter(
            torch.empty(out_channels, in_channels // groups, *self.kernel_size)
        )
        if bias:
            self.bias = nn.Parameter(torch.empty(out_channels))
        else:
            self.register_parameter("bias", None)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        """Draw weight and bias as torchvision's layer does."""
        nn.init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            fan_in, _ = nn.init._calculate_fan_in_and_fan_out(self.weight)
            bound = 1 / math.sqrt(fan_in)
            nn.init.uniform_(self.bias, -bound, bound)

    def forward(self, input: Tensor, offset: Tensor, mask: Tensor | None = None) -> Tensor:
        """Convolve `input` (N, C, H, W), its taps moved by `offset` and scaled by `mask`.

        Args:
            input: the images.
            offset: (N, 2 * offset groups * kernel height * kernel width, Ho, Wo), y before x.
            mask: (N, offset groups * kernel height * kernel width, Ho, Wo).
        """
        # By the name that TorchScript knows, and with the lists that it wants.
        found: Tensor = torch.ops.vision.deform_conv2d(
            input,
            offset,
            self.weight,
            self.bias,
            [self.stride[0], self.stride[1]],
            [self.padding[0], self.padding[1]],
            [self.dilation[0], self.dilation[1]],
            mask,
        )
        return found

    def extra_repr(self) -> str:
        """Say what the layer was made with, as far as it is not the default."""
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}"
        text += f", stride={self.stride}"
        text += f", padding={self.padding}" if self.padding != (0, 0) else ""
        text += f", dilation={self.dilation}" if self.dilation != (1, 1) else ""
        text += f", groups={self.groups}" if self.groups != 1 else ""
        return text + (", bias=False" if self.bias is None else "")
