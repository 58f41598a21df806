"""From camera geometry to the index tensors of `bev_pool_v2`, in plain PyTorch.

The steps are those of the lift-splat view transformer (Philion and Fidler 2020, arXiv:2008.05711),
the indices are laid out as BEVDet does. Coordinates: pixels (u right, v down) with the depth along
the camera's axis; a camera's x is right, y down, z forward; the vehicle's x is forward, y left,
z up; metres.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor


class Ranks(NamedTuple):
    """The five index tensors of `bev_pool_v2`, all int32, in the order of its parameters."""

    ranks_depth: Tensor
    ranks_feat: Tensor
    ranks_bev: Tensor
    interval_starts: Tensor
    interval_lengths: Tensor


@dataclass(frozen=True)
class Grid:
    """A box of equal cells around the vehicle.

    Args:
        lower: the corner with the smallest x, y, z, in metres.
        cell: the edges of one cell along x, y, z, in metres.
        counts: the number of cells along x, y, z.
    """

    lower: tuple[float, float, float]
    cell: tuple[float, float, float]
    counts: tuple[int, int, int]

    @property
    def bev_size(self) -> tuple[int, int, int]:
        """The number of cells along z, y, x, as `bev_pool_v2` wants them."""
        x, y, z = self.counts
        return (z, y, x)


@dataclass(frozen=True)
class Cameras:
    """Where B x N cameras stand and how they look.

    Args:
        intrinsics: (B, N, 3, 3), from camera coordinates to pixels of the network's input image.
        rotations: (B, N, 3, 3), from camera to vehicle coordinates.
        translations: (B, N, 3), the cameras' positions in the vehicle, in metres.
    """

    intrinsics: Tensor
    rotations: Tensor
    translations: Tensor


def frustum(image_size: tuple[int, int], feature_size: tuple[int, int], depths: Tensor) -> Tensor:
    """Give the pixel and the depth at which each element of a depth distribution stands.

    Args:
        image_size: height and width of the network's input image, in pixels.
        feature_size: height H and width W of the feature map; its corners are the image's corners.
        depths: (D,), the depth of each bin, in metres.

    Returns:
        (D, H, W, 3): u and v in pixels, depth in metres.
    """
    (height, width), (rows, columns) = image_size, feature_size
    like = {"dtype": depths.dtype, "device": depths.device}
    v = torch.linspace(0, height - 1, rows, **like)
    u = torch.linspace(0, width - 1, columns, **like)
    depth, v, u = torch.meshgrid(depths, v, u, indexing="ij")
    return torch.stack((u, v, depth), -1)


def lift(points: Tensor, cameras: Cameras) -> Tensor:
    """Carry frustum points of every camera into the vehicle's coordinates.

    Args:
        points: (D, H, W, 3), of `frustum`.
        cameras: B x N of them.

    Returns:
        (B, N, D, H, W, 3), in metres.
    """
    u, v, depth = points.unbind(-1)
    rays = torch.stack((u * depth, v * depth, depth), -1)
    matrix = cameras.rotations @ torch.linalg.inv(cameras.intrinsics)
    turned = torch.einsum("bnij,dhwj->bndhwi", matrix, rays)
    return turned + cameras.translations[:, :, None, None, None, :]


def pool_ranks(points: Tensor, grid: Grid) -> Ranks:
    """Sort the points that fall into the grid by cell, and find the runs of equal cells.

    Args:
        points: (B, N, D, H, W, 3), in the vehicle's coordinates, in metres.
        grid: the cells; points outside it are dropped.

    Returns:
        The index tensors, int32, on the device of the points. Points of one cell stay in the order
        of `ranks_depth`. Nothing inside the grid gives P = I = 0.
    """
    _, cameras, bins, rows, columns, _ = points.shape
    lower, cell = (points.new_tensor(v) for v in (grid.lower, grid.cell))
    index = torch.floor((points - lower) / cell).reshape(-1, 3)
    counts = points.new_tensor(grid.counts)
    ranks_depth = ((index >= 0) & (index < counts)).all(-1).nonzero().squeeze(-1)
    x, y, z = index[ranks_depth].long().unbind(-1)
    pixels = rows * columns
    ranks_feat = ranks_depth // (bins * pixels) * pixels + ranks_depth % pixels
    frame = ranks_depth // (cameras * bins * pixels)
    layers, width, length = grid.bev_size
    ranks_bev = ((frame * layers + z) * width + y) * length + x

    ranks_bev, order = torch.sort(ranks_bev, stable=True)
    ranks_depth, ranks_feat = ranks_depth[order], ranks_feat[order]
    _, lengths = torch.unique_consecutive(ranks_bev, return_counts=True)
    starts = torch.cumsum(lengths, 0) - lengths
    return Ranks(*(t.int() for t in (ranks_depth, ranks_feat, ranks_bev, starts, lengths)))


def surround_cameras(batch: int = 1, image_size: tuple[int, int] = (256, 704)) -> Cameras:
    """Give six cameras around a car, alike to those of the nuScenes vehicles.

    Five have a focal length of 1266 pixels on images of 1600 x 900 and the one that looks back 809.
    The images are scaled to the wanted width; what is too high is cut off above, as BEVDet does.

    Args:
        batch: the number of frames B; each has the same six cameras.
        image_size: height and width of the network's input image, in pixels.

    Returns:
        Float32 cameras, N = 6: front left, front, front right, back left, back, back right.
    """
    height, width = image_size
    scale = width / 1600
    layout = [  # yaw in degrees (left is positive), x, y, focal length
        (55.0, 1.5, 0.5, 1266.0),
        (0.0, 1.7, 0.0, 1266.0),
        (-55.0, 1.5, -0.5, 1266.0),
        (110.0, 1.0, 0.5, 1266.0),
        (180.0, 0.0, 0.0, 809.0),
        (-110.0, 1.0, -0.5, 1266.0),
    ]
    intrinsics, rotations, translations = [], [], []
    for yaw, x, y, focal in layout:
        f, top = focal * scale, 900 * scale - height
        intrinsics.append([[f, 0, 800 * scale], [0, f, 450 * scale - top], [0, 0, 1]])
        c, s = math.cos(math.radians(yaw)), math.sin(math.radians(yaw))
        # The columns are the camera's right, down and forward, seen from the vehicle.
        rotations.append([[s, 0, c], [-c, 0, s], [0, -1, 0]])
        translations.append([x, y, 1.5])
    one = (torch.tensor(v, dtype=torch.float32) for v in (intrinsics, rotations, translations))
    return Cameras(*(t.expand(batch, *t.shape) for t in one))
