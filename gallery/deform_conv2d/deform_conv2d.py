"""`vision::deform_conv2d` and its backward, in two operators of their own."""

from collections.abc import Iterator
from typing import Annotated, Any

import torch
from jaxtyping import Float
from torch import Tensor

import opsmith
from opsmith import Between

from .columns import corners, gather, groups_of, pixels_and_zero
from .inputs import backward_cases, cases

Pair = tuple[int, int]
Steps = Annotated[Pair, Between(1, None)]
Margin = Annotated[Pair, Between(0, None)]


# Weight groups mix Cg channels each; Go offset groups have an offset for each tap of the kernel.
_GROUPS = ("M % Gw == 0", "Gw*Cg % Go == 0")
# The height and the width of the result. A stride of 0 is refused as such, not divided by.
_OUT = (
    "(H+2*{padding[0]}-{dilation[0]}*(kH-1)-1)//max({stride[0]},1)+1 "
    "(W+2*{padding[1]}-{dilation[1]}*(kW-1)-1)//max({stride[1]},1)+1"
)


@opsmith.op("vision::deform_conv2d", autograd="reference", parallel_dims=("N",), where=_GROUPS)
def deform_conv2d(
    input: Float[Tensor, "N Gw*Cg H W"],
    offset: Float[Tensor, f"N 2*Go*kH*kW {_OUT}"],
    weight: Float[Tensor, "M Cg kH kW"],
    bias: Float[Tensor, "M"] | None = None,
    stride: Steps = (1, 1),
    padding: Margin = (0, 0),
    dilation: Steps = (1, 1),
    mask: Float[Tensor, f"N Go*kH*kW {_OUT}"] | None = None,
) -> Float[Tensor, f"N M {_OUT}"]:
    """Convolve, each tap sampling the input where an offset moves it.

    Tap (i, j) of output pixel (oy, ox) reads ``input`` at ``oy * stride - padding + i * dilation``
    plus its offset, and x likewise, interpolating bilinearly between pixels; outside of the image
    there are zeros. Each of the Gw weight groups and Go offset groups takes its share of the
    channels, in order.

    Args:
        input: the images.
        offset: in pixels; channel ``2 * ((g * kH + i) * kW + j)`` has the y of offset group g and
            tap (i, j), the next one the x.
        weight: M output channels, ``Cg`` input channels each, kH x kW taps.
        bias: added to each output channel.
        stride: down and right, and so the others.
        padding: rows and columns of zeros around the image.
        dilation: pixels between taps.
        mask: what the sample of offset group g and tap (i, j) is multiplied with, in channel
            ``(g * kH + i) * kW + j``.

    Returns:
        The convolved images.

    Source:
        Dai et al. 2017, arXiv:1703.06211; with masks, Zhu et al. 2018, arXiv:1811.11168. The
        contract is that of ``torchvision.ops.deform_conv2d`` and of ONNX ``DeformConv``.
    """
    columns = _columns(input, offset, weight.shape, stride, padding, dilation, mask)
    n, groups = columns.shape[:2]
    out = weight.reshape(groups, weight.shape[0] // groups, columns.shape[2]) @ columns
    out = out.reshape(n, weight.shape[0], *offset.shape[2:])
    return out if bias is None else out + bias.reshape(-1, 1, 1)


@opsmith.op(
    "vision::deform_conv2d_backward_input",
    autograd="reference",
    parallel_dims=("N",),
    where=_GROUPS,
)
def deform_conv2d_backward_input(
    grad: Float[Tensor, "N M Ho Wo"],
    input: Float[Tensor, "N Gw*Cg H W"],
    offset: Float[Tensor, "N 2*Go*kH*kW Ho Wo"],
    weight: Float[Tensor, "M Cg kH kW"],
    mask: Float[Tensor, "N Go*kH*kW Ho Wo"] | None,
    stride: Steps,
    padding: Margin,
    dilation: Steps,
) -> tuple[
    Float[Tensor, "N Gw*Cg H W"],
    Float[Tensor, "N 2*Go*kH*kW Ho Wo"],
    Float[Tensor, "N Go*kH*kW Ho Wo"],
]:
    """Give the gradients of `deform_conv2d` with respect to what it samples, and where.

    Args:
        grad: the gradient of the convolved images.
        input: as `deform_conv2d` has it, and so the others.
        offset: see `input`.
        weight: see `input`.
        mask: see `input`.
        stride: see `input`.
        padding: see `input`.
        dilation: see `input`.

    Returns:
        The gradients of `input`, `offset` and `mask`; without a mask the last is that of a mask of
        ones. Where a position is a whole number of pixels, and the output has a kink, the
        offset's gradient is that for moving down and right.
    """
    groups = groups_of(input.shape[1], offset, weight.shape)
    n, channels, height, width = input.shape
    outputs, per_group, *kernel = weight.shape
    taps, positions = kernel[0] * kernel[1], grad.shape[2] * grad.shape[3]
    samples, outputs = taps * positions, outputs // groups.weights
    grouped = grad.reshape(n, groups.weights, outputs, positions)
    kernels = weight.reshape(groups.weights, outputs, per_group * taps)
    columns = kernels.transpose(1, 2) @ grouped
    columns = columns.reshape(n, groups.offsets, channels // groups.offsets, samples)
    pixels = pixels_and_zero(input, groups.offsets)
    masks = 1 if mask is None else mask.reshape(n, groups.offsets, samples)

    grad_pixels = torch.zeros_like(pixels)
    down = right = grad_mask = offset.new_zeros(n, groups.offsets, samples)
    for corner in corners(
        offset, groups.offsets, (height, width), kernel, stride, padding, dilation
    ):
        products = (columns * gather(pixels, corner.index)).sum(2)
        down = down + products * corner.down
        right = right + products * corner.right
        grad_mask = grad_mask + products * corner.share
        index = corner.index.unsqueeze(2).expand_as(columns)
        spread = columns * (corner.share * masks).unsqueeze(2)
        grad_pixels = grad_pixels.scatter_add(3, index, spread)
    by_tap = (n, groups.offsets, taps, 1, *offset.shape[2:])
    grad_offset = torch.cat(
        [(down * masks).reshape(by_tap), (right * masks).reshape(by_tap)], dim=3
    )
    return (
        grad_pixels[..., :-1].reshape(input.shape),
        grad_offset.reshape(offset.shape),
        grad_mask.reshape(n, offset.shape[1] // 2, *offset.shape[2:]),
    )


@opsmith.op(
    "vision::deform_conv2d_backward_weight",
    autograd="reference",
    where=("weight_shape[0] % Gw == 0", "Gw*weight_shape[1] % Go == 0"),
)
def deform_conv2d_backward_weight(
    grad: Float[Tensor, "N {weight_shape[0]} Ho Wo"],
    input: Float[Tensor, "N Gw*{weight_shape[1]} H W"],
    offset: Float[Tensor, "N 2*Go*{weight_shape[2]}*{weight_shape[3]} Ho Wo"],
    mask: Float[Tensor, "N Go*{weight_shape[2]}*{weight_shape[3]} Ho Wo"] | None,
    weight_shape: Annotated[tuple[int, int, int, int], Between(0, None)],
    stride: Steps,
    padding: Margin,
    dilation: Steps,
) -> Float[Tensor, "{weight_shape[0]} {weight_shape[1]} {weight_shape[2]} {weight_shape[3]}"]:
    """Give the gradient of `deform_conv2d` with respect to its weight.

    Args:
        grad: the gradient of the convolved images.
        input: as `deform_conv2d` has it, and so the others.
        offset: see `input`.
        mask: see `input`.
        weight_shape: the shape of the weight.
        stride: see `input`.
        padding: see `input`.
        dilation: see `input`.

    Returns:
        The gradient of `weight`.
    """
    columns = _columns(input, offset, weight_shape, stride, padding, dilation, mask)
    n, groups, _, pixels = columns.shape
    grouped = grad.reshape(n, groups, grad.shape[1] // groups, pixels)
    return (grouped @ columns.transpose(2, 3)).sum(0).reshape(weight_shape)


def _columns(
    input: Tensor,
    offset: Tensor,
    weight_shape: Any,
    stride: Pair,
    padding: Pair,
    dilation: Pair,
    mask: Tensor | None,
) -> Tensor:
    """All samples, (N, weight groups, channels of a group * taps, output pixels)."""
    groups = groups_of(input.shape[1], offset, weight_shape)
    n, channels, height, width = input.shape
    kernel = weight_shape[2:]
    pixels = pixels_and_zero(input, groups.offsets)
    columns = sum(
        gather(pixels, corner.index) * corner.share.unsqueeze(2)
        for corner in corners(
            offset, groups.offsets, (height, width), kernel, stride, padding, dilation
        )
    )
    if mask is not None:
        columns = columns * mask.reshape(n, groups.offsets, 1, columns.shape[3])
    depth = channels // groups.weights * kernel[0] * kernel[1]
    return columns.reshape(n, groups.weights, depth, offset.shape[2] * offset.shape[3])


# The kernels look at no floating-point exceptions, and without the flag GCC does not vectorise what
# tests offsets for a NaN.
_FLAGS = ("-fno-trapping-math",)
deform_conv2d.register_kernel("cpu", source="deform_conv2d.cpp", flags=_FLAGS)
deform_conv2d_backward_input.register_kernel(
    "cpu", source="deform_conv2d_backward_input.cpp", flags=_FLAGS
)
deform_conv2d_backward_weight.register_kernel(
    "cpu", source="deform_conv2d_backward_weight.cpp", flags=_FLAGS
)
deform_conv2d.register_kernel("cuda", source="deform_conv2d.cu")
deform_conv2d_backward_input.register_kernel("cuda", source="deform_conv2d_backward_input.cu")
deform_conv2d_backward_weight.register_kernel("cuda", source="deform_conv2d_backward_weight.cu")


@deform_conv2d.register_onnx(opset=19)
def _onnx(
    op: Any,
    input: Any,
    offset: Any,
    weight: Any,
    bias: Any,
    stride: Pair,
    padding: Pair,
    dilation: Pair,
    mask: Any,
) -> Any:
    kernel = [op.size(weight, 2), op.size(weight, 3)]
    return op.DeformConv(
        input,
        weight,
        offset,
        bias,
        mask,
        kernel_shape=kernel,
        strides=stride,
        pads=(*padding, *padding),
        dilations=dilation,
        group=op.size(input, 1) // op.size(weight, 1),
        offset_group=op.size(offset, 1) // (2 * kernel[0] * kernel[1]),
    )


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    input, offset, weight, _, *ctx.geometry, mask = inputs
    ctx.save_for_backward(input, offset, weight, mask)


def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
    input, offset, weight, mask = ctx.saved_tensors
    wants_input, wants_offset, wants_weight, wants_bias, *_, wants_mask = ctx.needs_input_grad
    input_grad = offset_grad = weight_grad = bias_grad = mask_grad = None
    if wants_input or wants_offset or wants_mask:
        input_grad, offset_grad, mask_grad = deform_conv2d_backward_input(
            grad, input, offset, weight, mask, *ctx.geometry
        )
    if wants_weight:
        weight_grad = deform_conv2d_backward_weight(
            grad, input, offset, mask, weight.shape, *ctx.geometry
        )
    if wants_bias:
        bias_grad = grad.sum((0, 2, 3))
    return (
        input_grad,
        offset_grad,
        weight_grad,
        bias_grad,
        None,
        None,
        None,
        mask_grad if wants_mask else None,
    )


deform_conv2d.register_autograd(_backward, setup_context=_setup_context)


def _setup_weight_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    grad, input, offset, mask, _, *ctx.geometry = inputs
    ctx.save_for_backward(grad, input, offset, mask)


def _weight_backward(ctx: Any, weight: Tensor) -> tuple[Tensor | None, ...]:
    # <weight, gradient of the weight> is <grad, convolution with weight>, so its derivatives are
    # those that there are operators for.
    grad, input, offset, mask = ctx.saved_tensors
    wants_grad, wants_input, wants_offset, wants_mask, *_ = ctx.needs_input_grad
    grad_grad = input_grad = offset_grad = mask_grad = None
    if wants_grad:
        grad_grad = deform_conv2d(input, offset, weight, None, *ctx.geometry, mask)
    if wants_input or wants_offset or wants_mask:
        input_grad, offset_grad, mask_grad = deform_conv2d_backward_input(
            grad, input, offset, weight, mask, *ctx.geometry
        )
    mask_grad = mask_grad if wants_mask else None
    return grad_grad, input_grad, offset_grad, mask_grad, None, None, None, None


deform_conv2d_backward_weight.register_autograd(
    _weight_backward, setup_context=_setup_weight_context
)


# The gradient has two sides at positions that are a whole number of pixels, which random values may
# give.
@deform_conv2d.register_cases(only=True)
def _cases(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    yield from cases(dtype, seed)


@deform_conv2d_backward_input.register_cases(only=True)
def _backward_input_cases(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    for case in backward_cases(dtype, seed):
        yield {name: value for name, value in case.items() if name != "weight_shape"}


@deform_conv2d_backward_weight.register_cases(only=True)
def _backward_weight_cases(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    for case in backward_cases(dtype, seed):
        yield {name: value for name, value in case.items() if name != "weight"}
