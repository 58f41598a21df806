"""Arguments for `deform_conv2d`: small ones for its contract, and those of networks."""

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor


def case(
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
    *,
    batch: int = 1,
    channels: int = 64,
    size: tuple[int, int] = (56, 56),
    outputs: int = 64,
    kernel: tuple[int, int] = (3, 3),
    stride: tuple[int, int] = (1, 1),
    padding: tuple[int, int] = (1, 1),
    dilation: tuple[int, int] = (1, 1),
    groups: int = 1,
    offset_groups: int = 1,
    mask: bool = True,
    bias: bool = True,
    reach: float = 2.0,
) -> dict[str, Any]:
    """Give random arguments of `deform_conv2d`, by default those of a layer of a ResNet.

    No sampled position is a whole number of pixels, where the gradient has two sides.

    Args:
        dtype: of all tensors.
        seed: decides their values.
        batch: images N.
        channels: C.
        size: height and width of the images.
        outputs: output channels M.
        kernel: height and width.
        stride: down and right, and so the others.
        padding: see `stride`.
        dilation: see `stride`.
        groups: weight groups.
        offset_groups: offset groups.
        mask: whether there is one.
        bias: whether there is one.
        reach: standard deviation of the offsets, in pixels.
    """
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator, dtype=torch.float64)

    def uniform(*shape: int) -> Tensor:
        return torch.rand(*shape, generator=generator, dtype=torch.float64)

    taps = kernel[0] * kernel[1]
    out = [
        (size[i] + 2 * padding[i] - dilation[i] * (kernel[i] - 1) - 1) // stride[i] + 1
        for i in range(2)
    ]
    offset = (batch, 2 * offset_groups * taps, *out)
    per_group = channels // groups
    return {
        "input": normal(batch, channels, *size).to(dtype),
        # In eighths of a pixel, and a power of two pixels at most: exact in every dtype.
        "offset": (
            (normal(*offset) * reach).clamp(-30, 30).floor() + _fractions(uniform(*offset))
        ).to(dtype),
        "weight": (normal(outputs, per_group, *kernel) / max(per_group * taps, 1) ** 0.5).to(dtype),
        "bias": normal(outputs).to(dtype) if bias else None,
        "stride": stride,
        "padding": padding,
        "dilation": dilation,
        "mask": uniform(batch, offset_groups * taps, *out).to(dtype) if mask else None,
    }


def _fractions(uniform: Tensor) -> Tensor:
    return (1 + (uniform * 7).floor()) / 8


def cases(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    """Give one small set of arguments for each part of the contract."""
    shapes: tuple[dict[str, Any], ...] = (
        {"channels": 2, "size": (5, 6), "outputs": 3},
        {"channels": 2, "size": (5, 6), "outputs": 3, "mask": False},
        {"channels": 2, "size": (5, 6), "outputs": 3, "bias": False},
        # Weight groups that are not offset groups; steps that differ by axis.
        {"channels": 6, "outputs": 4, "groups": 2, "offset_groups": 3, "size": (7, 9)}
        | {"kernel": (2, 3), "stride": (2, 1), "padding": (0, 2), "dilation": (1, 2)},
        # Most samples outside of the image, many across its border.
        {"channels": 3, "size": (2, 3), "outputs": 2, "reach": 6.0, "padding": (2, 2)},
        {"batch": 3, "channels": 4, "size": (4, 4), "outputs": 4, "groups": 4, "mask": False},
        # One more than a vector, than a tile and than a panel hold.
        {"channels": 33, "size": (9, 13), "outputs": 35, "kernel": (1, 3), "padding": (0, 1)},
        {
            "channels": 40,
            "size": (4, 5),
            "outputs": 20,
            "groups": 4,
            "offset_groups": 2,
            "batch": 2,
        },
        # These two differ in sizes alone, so that what is compiled for one can be run on the other.
        {"batch": 2, "channels": 3, "size": (5, 6), "outputs": 4},
        {"batch": 3, "channels": 3, "size": (7, 8), "outputs": 4},
        {"batch": 0, "channels": 2, "size": (4, 4), "outputs": 2},
        {"channels": 2, "size": (1, 1), "outputs": 1, "kernel": (1, 1), "padding": (0, 0)},
    )
    for number, shape in enumerate(shapes):
        yield case(dtype, seed + number, **shape)


def backward_cases(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    """Give the same with the output's gradient and the weight's shape, for the backward."""
    generator = torch.Generator().manual_seed(seed)
    for arguments in cases(dtype, seed):
        weight, offset = arguments["weight"], arguments["offset"]
        shape = (offset.shape[0], weight.shape[0], *offset.shape[2:])
        del arguments["bias"]
        yield {
            "grad": torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype),
            **arguments,
            "weight_shape": tuple(weight.shape),
        }
