"""`detection::nms`: of boxes that overlap, the one with the highest score."""

from collections.abc import Iterator
from typing import Annotated, Any

import torch
from jaxtyping import Float, Int64
from torch import Tensor

import opsmith
from opsmith import Between, Unspecified


@opsmith.op("detection::nms", data_dependent=("M",), tags=(torch.Tag.cudagraph_unsafe,))
def nms(
    boxes: Annotated[Float[Tensor, "N 4"], Unspecified(nan=True, inf=True)],
    scores: Annotated[Float[Tensor, "N"], Unspecified(nan=True)],
    iou_threshold: Annotated[float, Between(0.0, 1.0)] = 0.5,
) -> Int64[Tensor, "M"]:
    """Keep the boxes that overlap none with a higher score too far.

    Args:
        boxes: corners of each box, ``x1, y1, x2, y2`` with ``x1 <= x2`` and ``y1 <= y2``.
        scores: of each box; of equal ones, the box that comes first wins.
        iou_threshold: a box goes if its intersection with one that stays, over their union, is
            above it.

    Returns:
        The indices of the boxes that stay, the highest score first.

    Source:
        ``torchvision.ops.nms``, whose arguments and result these are.
    """
    order = scores.argsort(descending=True, stable=True)
    x1, y1, x2, y2 = boxes[order].unbind(1)
    areas = (x2 - x1) * (y2 - y1)
    width = torch.minimum(x2[:, None], x2) - torch.maximum(x1[:, None], x1)
    height = torch.minimum(y2[:, None], y2) - torch.maximum(y1[:, None], y1)
    both = width.clamp(min=0) * height.clamp(min=0)
    overlaps = (both / (areas[:, None] + areas - both) > iou_threshold).triu(1)
    gone = torch.zeros_like(order, dtype=torch.bool)
    for place, overlapped in enumerate(overlaps.unbind(0)):
        gone = gone | (overlapped & ~gone[place])
    return order[~gone]


nms.register_kernel("cpu", source="nms.cpp")
nms.register_kernel("cuda", source="nms.cu")


def boxes_of(count: int, seed: int = 0, dtype: torch.dtype = torch.float32) -> dict[str, Any]:
    """Give the arguments of `nms` for boxes as a detector proposes them, several to each object.

    Args:
        count: how many boxes.
        seed: decides them.
        dtype: of boxes and scores.

    Returns:
        `boxes` in an image of 800 x 1,333 pixels, and `scores`.
    """
    generator = torch.Generator().manual_seed(seed)
    objects = max(count // 12, 1)
    which = torch.randint(objects, (count,), generator=generator)
    centers = torch.rand(objects, 2, generator=generator) * torch.tensor([1333.0, 800.0])
    sizes = torch.rand(objects, 2, generator=generator) * 200 + 20
    jitter = 1 + torch.randn(count, 4, generator=generator) * 0.1
    center = centers[which] + sizes[which] * (jitter[:, :2] - 1)
    size = sizes[which] * jitter[:, 2:].clamp(min=0.2)
    boxes = torch.cat((center - size / 2, center + size / 2), 1)
    return {"boxes": boxes.to(dtype), "scores": torch.rand(count, generator=generator).to(dtype)}


@nms.register_cases(only=True)
def _cases(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    for count in (0, 1, 2, 40, 64, 65, 150):
        for threshold in (0.3, 0.7):
            yield {**boxes_of(count, seed, dtype), "iou_threshold": threshold}
    # Equal scores; boxes that do not touch, that touch, that are equal, that are points.
    boxes = torch.tensor(
        [[0, 0, 2, 2], [2, 0, 4, 2], [0, 0, 2, 2], [5, 5, 5, 5], [5, 5, 5, 5], [0, 0, 2, 3]]
    ).to(dtype)
    scores = torch.tensor([1, 1, 1, 2, 2, 0]).to(dtype)
    for threshold in (0.0, 0.5, 1.0):
        yield {"boxes": boxes, "scores": scores, "iou_threshold": threshold}
