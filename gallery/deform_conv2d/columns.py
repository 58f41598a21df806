"""Where deformable convolution samples, in plain PyTorch."""

from collections.abc import Iterator, Sequence
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn import functional


class Groups(NamedTuple):
    """How many groups the shapes of one call imply.

    Attributes:
        weights: groups of channels that `weight` mixes.
        offsets: groups of channels that are moved by the same offsets.
    """

    weights: int
    offsets: int


def groups_of(channels: int, offset: Tensor, weight_shape: Sequence[int]) -> Groups:
    """Return the groups of a call.

    Args:
        channels: of the input.
        offset: (N, 2 * offset groups * kernel height * kernel width, ...).
        weight_shape: (output channels, input channels of a group, kernel height, kernel width).
    """
    _, per_group, height, width = weight_shape
    return Groups(channels // per_group, offset.shape[1] // (2 * height * width))


class Corner(NamedTuple):
    """One of the four pixels around every sampled position.

    Each tensor is (N, offset groups, taps * output pixels).

    Attributes:
        index: the pixel, flat; H * W for one outside of the image.
        share: how much of it is taken.
        down: by how much `share` grows for a step down.
        right: ditto to the right.
    """

    index: Tensor
    share: Tensor
    down: Tensor
    right: Tensor


def corners(
    offset: Tensor,
    groups: int,
    image: Sequence[int],
    kernel: Sequence[int],
    stride: Sequence[int],
    padding: Sequence[int],
    dilation: Sequence[int],
) -> Iterator[Corner]:
    """Find the four corners of every sampled position.

    Args:
        offset: (N, 2 * groups * kernel height * kernel width, Ho, Wo).
        groups: offset groups.
        image: height and width of the input.
        kernel: height and width of the kernel.
        stride: down and right, and so the others.
        padding: see `stride`.
        dilation: see `stride`.
    """
    out = offset.shape[2:]
    moved = offset.reshape(offset.shape[0], groups, *kernel, 2, *out)
    # An infinite offset is outside of every image, and 2**30 is exact in every float dtype but
    # float16, which does not reach it.
    limit = min(torch.finfo(offset.dtype).max, 2.0**30)
    moved = moved.clamp(-limit, limit)
    # The offset is split into whole pixels and the rest, not the position: adding it to the tap's
    # place first would round away on which side of a pixel's border it is.
    whole = moved.detach().floor()
    rest = moved - whole
    low, low_shape = [], ((-1, 1, 1, 1), (-1, 1, 1))
    for axis in range(2):
        taps = torch.arange(kernel[axis], device=offset.device) * dilation[axis]
        pixels = torch.arange(out[axis], device=offset.device) * stride[axis] - padding[axis]
        place = taps.reshape(low_shape[axis]) + pixels.reshape((-1, 1) if axis == 0 else (-1,))
        low.append(whole[:, :, :, :, axis].to(torch.int64) + place)
    flat = (offset.shape[0], groups, kernel[0] * kernel[1] * out[0] * out[1])
    down, right = rest[:, :, :, :, 0], rest[:, :, :, :, 1]
    for step_y in (0, 1):
        for step_x in (0, 1):
            y, x = low[0] + step_y, low[1] + step_x
            inside = (y >= 0) & (y < image[0]) & (x >= 0) & (x < image[1])
            share_y, share_x = (down if step_y else 1 - down), (right if step_x else 1 - right)
            found = (
                torch.where(inside, y * image[1] + x, image[0] * image[1]),
                share_y * share_x,
                share_x if step_y else -share_x,
                share_y if step_x else -share_y,
            )
            yield Corner(*(part.reshape(flat) for part in found))


def pixels_and_zero(input: Tensor, groups: int) -> Tensor:
    """Flatten the images to (N, groups, C // groups, H * W + 1); the last pixel is zero."""
    n, channels, height, width = input.shape
    flat = input.reshape(n, groups, channels // groups, height * width)
    return functional.pad(flat, (0, 1))


def gather(pixels: Tensor, index: Tensor) -> Tensor:
    """Take the same pixels of all channels of a group."""
    return pixels.gather(3, index.unsqueeze(2).expand(-1, -1, pixels.shape[2], -1))
