"""Synthetic traffic: boxes around a car, seen by six cameras, and where they stand from above."""

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from gallery.bev_pool_v2.geometry import (
    Cameras,
    Grid,
    Ranks,
    frustum,
    lift,
    pool_ranks,
    surround_cameras,
)

IMAGE = (64, 176)
STRIDE = 8
BINS = 24
GRID = Grid((-38.4, -38.4, -5.0), (2.4, 2.4, 8.0), (32, 32, 1))
_NEAREST, _FARTHEST = 4.0, 50.0


class Scene(NamedTuple):
    """What the network sees of one moment, and what it should say.

    Attributes:
        images: (1, N, 3, height, width), N = 6 cameras.
        ranks: which camera points fall into which cells; their number differs from scene to scene.
        target: (1, 1, Y, X), 1 where a box stands.
    """

    images: Tensor
    ranks: Ranks
    target: Tensor

    @property
    def inputs(self) -> tuple[Tensor, ...]:
        """The network's arguments."""
        return (self.images, *self.ranks)


@dataclass(frozen=True)
class _Box:
    x: float
    y: float
    colour: tuple[float, float, float]
    half: float = 1.0


def draw_scene(seed: int, boxes: int = 5) -> Scene:
    """Draw a scene.

    Args:
        seed: decides everything in it, also how well the cameras are mounted.
        boxes: how many there are.
    """
    generator = torch.Generator().manual_seed(seed)

    def uniform(low: float, high: float, *shape: int) -> Tensor:
        return low + (high - low) * torch.rand(*shape, generator=generator)

    angle = uniform(-torch.pi, torch.pi, boxes)
    distance = uniform(7, 34, boxes)
    colours = uniform(0.5, 1, boxes, 3)
    placed = [
        _Box(float(d * torch.cos(a)), float(d * torch.sin(a)), tuple(c.tolist()))
        for a, d, c in zip(angle, distance, colours, strict=True)
    ]
    cameras = surround_cameras(1, IMAGE)
    # No two cars are built alike, so no two scenes have the same points.
    moved = cameras.translations + uniform(-0.3, 0.3, 1, 6, 3)
    cameras = Cameras(cameras.intrinsics, cameras.rotations, moved)
    noise = 0.05 * torch.randn(1, 6, 3, *IMAGE, generator=generator)
    return Scene(_images(cameras, placed) + noise, _ranks(cameras), _target(placed))


def _ranks(cameras: Cameras) -> Ranks:
    size = (IMAGE[0] // STRIDE, IMAGE[1] // STRIDE)
    depths = torch.linspace(_NEAREST, _FARTHEST, BINS)
    return pool_ranks(lift(frustum(IMAGE, size, depths), cameras), GRID)


def _images(cameras: Cameras, boxes: list[_Box]) -> Tensor:
    height, width = IMAGE
    images = torch.zeros(1, 6, 3, height, width)
    rows = torch.linspace(0.1, 0.3, height)
    images += rows[:, None]
    for n in range(6):
        rotation, position = cameras.rotations[0, n], cameras.translations[0, n]
        focal = float(cameras.intrinsics[0, n, 0, 0])
        centre = cameras.intrinsics[0, n, :2, 2]
        seen = []
        for box in boxes:
            right, down, depth = rotation.T @ (torch.tensor([box.x, box.y, 0.8]) - position)
            if float(depth) > 1:
                seen.append((float(depth), float(right), float(down), box))
        # Far ones first, so that near ones cover them.
        for depth, right, down, box in sorted(seen, key=lambda item: -item[0]):
            u = float(centre[0]) + focal * right / depth
            v = float(centre[1]) + focal * down / depth
            half = focal * box.half / depth
            left, top = max(round(u - half), 0), max(round(v - half), 0)
            end, bottom = min(round(u + half) + 1, width), min(round(v + half) + 1, height)
            if left < end and top < bottom:
                colour = torch.tensor(box.colour)[:, None, None]
                images[0, n, :, top:bottom, left:end] = colour
    return images


def _target(boxes: list[_Box]) -> Tensor:
    columns, rows, _ = GRID.counts
    target = torch.zeros(1, 1, rows, columns)
    for box in boxes:
        column = int((box.x - GRID.lower[0]) / GRID.cell[0])
        row = int((box.y - GRID.lower[1]) / GRID.cell[1])
        if 0 <= row < rows and 0 <= column < columns:
            target[0, 0, row, column] = 1
    return target
