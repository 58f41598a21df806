"""Convolutions, in one to three dimensions, transposed, dilated, by channel and by pixel.

The number of channels of the input is fixed, as it is for a layer of a network.
"""

from jaxtyping import Float32
from stated import task
from torch import Tensor
from torch.nn import functional


@task(67, x=(2, 3, 40), weight=(4, 3, 3))
def conv1d(
    x: Float32[Tensor, "N 3 L"], weight: Float32[Tensor, "O 3 3"]
) -> Float32[Tensor, "N O L-2"]:
    return functional.conv1d(x, weight)


@task(76, x=(2, 3, 40), weight=(4, 3, 3))
def conv1d_dilated_strided(
    x: Float32[Tensor, "N 3 L"], weight: Float32[Tensor, "O 3 3"]
) -> Float32[Tensor, "N O (L-3)//2"]:
    return functional.conv1d(x, weight, stride=2, dilation=2)


@task(50, x=(2, 3, 12, 12), weight=(5, 3, 3, 3), bias=(5,))
def conv2d(
    x: Float32[Tensor, "N 3 H W"], weight: Float32[Tensor, "O 3 3 3"], bias: Float32[Tensor, "O"]
) -> Float32[Tensor, "N O H-2 W-2"]:
    return functional.conv2d(x, weight, bias)


@task(56, x=(2, 3, 8, 12), weight=(5, 3, 2, 4))
def conv2d_asymmetric(
    x: Float32[Tensor, "N 3 H W"], weight: Float32[Tensor, "O 3 2 4"]
) -> Float32[Tensor, "N O H-1 W-3"]:
    return functional.conv2d(x, weight)


@task(80, x=(2, 3, 8, 12), weight=(5, 3, 3, 3))
def conv2d_dilated_padded(
    x: Float32[Tensor, "N 3 H W"], weight: Float32[Tensor, "O 3 3 3"]
) -> Float32[Tensor, "N O H-2 W"]:
    return functional.conv2d(x, weight, padding=(1, 2), dilation=2)


@task(54, x=(1, 3, 6, 6, 6), weight=(4, 3, 2, 2, 2))
def conv3d(
    x: Float32[Tensor, "N 3 D H W"], weight: Float32[Tensor, "O 3 2 2 2"]
) -> Float32[Tensor, "N O D-1 H-1 W-1"]:
    return functional.conv3d(x, weight)


@task(64, x=(2, 3, 30), weight=(3, 4, 3))
def conv_transposed1d(
    x: Float32[Tensor, "N 3 L"], weight: Float32[Tensor, "3 O 3"]
) -> Float32[Tensor, "N O L+2"]:
    return functional.conv_transpose1d(x, weight)


@task(57, x=(2, 3, 7, 8), weight=(3, 4, 3, 3))
def conv_transposed2d(
    x: Float32[Tensor, "N 3 H W"], weight: Float32[Tensor, "3 O 3 3"]
) -> Float32[Tensor, "N O 2*H+1 2*W+1"]:
    return functional.conv_transpose2d(x, weight, stride=2)


@task(58, x=(1, 3, 4, 5, 4), weight=(3, 2, 2, 2, 2))
def conv_transposed3d(
    x: Float32[Tensor, "N 3 D H W"], weight: Float32[Tensor, "3 O 2 2 2"]
) -> Float32[Tensor, "N O D+1 H+1 W+1"]:
    return functional.conv_transpose3d(x, weight)


@task(82, x=(2, 4, 10, 10), weight=(4, 3, 3))
def depthwise(
    x: Float32[Tensor, "N 4 H W"], weight: Float32[Tensor, "4 3 3"]
) -> Float32[Tensor, "N 4 H-2 W-2"]:
    return functional.conv2d(x, weight[:, None], groups=x.shape[1])


@task(86, x=(2, 4, 10, 10), depth=(4, 3, 3), point=(5, 4))
def depthwise_separable(
    x: Float32[Tensor, "N 4 H W"], depth: Float32[Tensor, "4 3 3"], point: Float32[Tensor, "O 4"]
) -> Float32[Tensor, "N O H W"]:
    y = functional.conv2d(x, depth[:, None], padding=1, groups=x.shape[1])
    return functional.conv2d(y, point[:, :, None, None])


@task(87, x=(2, 4, 9, 10), weight=(5, 4), bias=(5,))
def pointwise(
    x: Float32[Tensor, "N 4 H W"], weight: Float32[Tensor, "O 4"], bias: Float32[Tensor, "O"]
) -> Float32[Tensor, "N O H W"]:
    return functional.conv2d(x, weight[:, :, None, None], bias)
