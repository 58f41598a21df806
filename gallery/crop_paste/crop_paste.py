"""`image::crop` and `image::paste`, each the other's gradient."""

from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from jaxtyping import Shaped
from torch import Tensor
from torch.nn.functional import pad

import opsmith


@opsmith.op("image::crop", parallel_dims=("*planes",), autograd="reference")
def crop(
    image: Shaped[Tensor, "*planes H W"], box: tuple[int, int, int, int]
) -> Shaped[Tensor, "*planes {box[3]-box[1]} {box[2]-box[0]}"]:
    """Cut a rectangle out of an image.

    Args:
        image: planes of any dtype, as (C, H, W) or (H, W).
        box: left, upper, right and lower edge in pixels, right and lower excluded. What lies
            outside the image is zero.

    Returns:
        The rectangle.

    Source:
        PyTorch's tutorial on custom operators in Python; the rules of ``PIL.Image.crop``.
    """
    left, upper, right, lower = box
    inside = image[..., max(upper, 0) : max(lower, 0), max(left, 0) : max(right, 0)]
    rows, columns = inside.shape[-2:]
    above = min(max(-upper, 0), lower - upper)
    before = min(max(-left, 0), right - left)
    behind, below = right - left - before - columns, lower - upper - above - rows
    return pad(inside, (before, behind, above, below))


@opsmith.op("image::paste", parallel_dims=("*planes",), autograd="reference")
def paste(
    image: Shaped[Tensor, "*planes H W"],
    patch: Shaped[Tensor, "*planes h w"],
    position: tuple[int, int],
) -> Shaped[Tensor, "*planes H W"]:
    """Put a patch over an image.

    Args:
        image: planes of any dtype, as (C, H, W) or (H, W); it is left as it is.
        patch: as many planes.
        position: left and upper edge of the patch, in pixels. What goes beyond the image is
            cut off.

    Returns:
        The image with the patch on it.

    Source:
        PyTorch's tutorial on custom operators in Python; the rules of ``PIL.Image.paste``.
    """
    (left, upper), (rows, columns) = position, image.shape[-2:]
    box = (-left, -upper, columns - left, rows - upper)
    inside = crop.reference(torch.ones_like(patch, dtype=torch.bool), box)
    return torch.where(inside, crop.reference(patch, box), image)


def _grey(tensor: Tensor) -> np.ndarray:
    """The planes as grey images for PIL, in the tensor's own memory.

    A pixel is as many grey ones wide as it has bytes: this carries every dtype without loss.
    """
    rows, columns = tensor.shape[-2:]
    data = tensor.reshape(-1).view(torch.uint8).numpy()
    return data.reshape(-1, rows, columns * tensor.element_size())


@crop.register_kernel("cpu")
def _crop_by_pil(image: Tensor, box: tuple[int, int, int, int]) -> Tensor:
    from PIL import Image  # as long to import as everything else here

    left, upper, right, lower = box
    size = image.element_size()
    wide = (left * size, upper, right * size, lower)
    out = image.new_zeros(*image.shape[:-2], lower - upper, right - left)
    if image.numel() and out.numel():
        whole = image.clone(memory_format=torch.contiguous_format)
        for source, target in zip(_grey(whole), _grey(out), strict=True):
            target[...] = Image.fromarray(source).crop(wide)
    return out


@paste.register_kernel("cpu")
def _paste_by_pil(image: Tensor, patch: Tensor, position: tuple[int, int]) -> Tensor:
    from PIL import Image

    left, upper = position
    out = image.clone(memory_format=torch.contiguous_format)
    if out.numel() and patch.numel():
        whole = patch.clone(memory_format=torch.contiguous_format)
        for target, source in zip(_grey(out), _grey(whole), strict=True):
            below = Image.fromarray(target)
            below.paste(Image.fromarray(source), (left * image.element_size(), upper))
            target[...] = below
    return out


def _crop_setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    image, ctx.box = inputs
    ctx.shape = image.shape


def _crop_backward(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
    return paste(grad.new_zeros(ctx.shape), grad, ctx.box[:2]), None


def _paste_setup(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _, patch, ctx.position = inputs
    ctx.shape = patch.shape


def _paste_backward(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor, None]:
    (left, upper), (rows, columns) = ctx.position, ctx.shape[-2:]
    covered = paste(grad, grad.new_zeros(ctx.shape), ctx.position)
    return covered, crop(grad, (left, upper, left + columns, upper + rows)), None


crop.register_autograd(_crop_backward, setup_context=_crop_setup)
paste.register_autograd(_paste_backward, setup_context=_paste_setup)


def _random(dtype: torch.dtype, seed: int, *shape: int) -> Tensor:
    values = torch.randn(shape, generator=torch.Generator().manual_seed(seed))
    return (values * 100).to(dtype)


# A random box is empty or far away nearly always.
@crop.register_cases(only=True)
def _crop_cases(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    boxes = {
        "inside": (1, 2, 4, 5),
        "everything": (0, 0, 7, 6),
        "one pixel": (6, 5, 7, 6),
        "nothing": (3, 3, 3, 3),
        "over two edges": (-2, -1, 3, 4),
        "over the other two": (5, 4, 9, 9),
        "around": (-1, -2, 8, 9),
        "beside": (9, 1, 11, 4),
        "before": (-4, -5, -1, -2),
    }
    for box in boxes.values():
        yield {"image": _random(dtype, seed, 3, 6, 7), "box": box}
    yield {"image": _random(dtype, seed, 4, 9, 8), "box": boxes["inside"]}
    yield {"image": _random(dtype, seed, 6, 7), "box": boxes["inside"]}
    yield {"image": _random(dtype, seed, 2, 2, 3, 6), "box": (1, -1, 4, 2)}
    yield {"image": _random(dtype, seed, 2, 0, 4), "box": (1, 0, 3, 2)}
    yield {"image": _random(dtype, seed, 0, 3, 4), "box": (1, 0, 3, 2)}


@paste.register_cases
def _paste_cases(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    for position in ((1, 2), (0, 0), (-1, -2), (5, 4), (9, 1), (-7, -7)):
        patch = _random(dtype, seed + 1, 3, 3, 2)
        yield {"image": _random(dtype, seed, 3, 6, 7), "patch": patch, "position": position}
    large = _random(dtype, seed + 1, 8, 9)
    yield {"image": _random(dtype, seed, 6, 7), "patch": large, "position": (-1, -1)}
