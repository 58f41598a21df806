"""`voxelize` gathers the points of each cell as a loop over the points does."""

import math
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

from gallery.voxelize.voxelize import cloud, voxelize

GALLERY = Path(__file__).parents[3] / "gallery"
GRID = {"voxel_size": (4.0, 5.0, 1.5), "point_cloud_range": (-20.0, -20.0, -3.0, 20.0, 20.0, 3.0)}


def point_by_point(
    points: Tensor,
    voxel_size: tuple[float, ...],
    point_cloud_range: tuple[float, ...],
    max_points: int,
    max_voxels: int,
) -> tuple[Tensor, Tensor, Tensor]:
    """A dictionary of cells, filled point after point: ends of cells, not divisions."""
    edges = []
    for axis, size in enumerate(voxel_size):
        low, high = point_cloud_range[axis], point_cloud_range[axis + 3]
        count = round((high - low) / size)
        edges.append([low + cell * size for cell in range(count + 1)])
    found: dict[tuple[int, ...], list[int]] = {}
    for number, point in enumerate(points.double().tolist()):
        cell = []
        for place, ends in zip(point[:3], edges, strict=True):
            cell += [at for at in range(len(ends) - 1) if ends[at] <= place < ends[at + 1]]
        key = tuple(reversed(cell))
        if len(key) == 3 and (key in found or len(found) < max_voxels):
            found.setdefault(key, []).append(number)
    voxels = points.new_zeros(len(found), max_points, points.shape[1])
    for voxel, members in enumerate(found.values()):
        kept = members[:max_points]
        voxels[voxel, : len(kept)] = points[kept]
    counts = [min(len(members), max_points) for members in found.values()]
    places = torch.tensor(list(found), dtype=torch.int32).reshape(-1, 3)
    return voxels, places, torch.tensor(counts, dtype=torch.int32)


def limits(max_points: int, max_voxels: int) -> dict[str, Any]:
    return {**GRID, "max_points": max_points, "max_voxels": max_voxels}


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize(("max_points", "max_voxels"), [(1, 1000), (4, 30), (1000, 1000)])
def test_the_reference_is_a_loop_over_the_points(
    dtype: torch.dtype, max_points: int, max_voxels: int
) -> None:
    points = cloud(400, dtype=dtype)
    points[7, 0], points[8, 2], points[9, 1] = math.nan, math.inf, -math.inf
    points[10, 3] = math.nan  # is copied
    given = limits(max_points, max_voxels)
    expected = point_by_point(points, **given)
    found = voxelize.reference(points, **given)
    torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)
    counts = expected[2].tolist()
    assert (len(counts) == max_voxels) == (max_voxels == 30)  # so both limits are reached
    assert (max(counts) == max_points) == (max_points < 1000)


def test_points_on_a_lower_bound_are_inside_and_on_the_upper_one_outside() -> None:
    places = [-1e-9, 0.0, 0.999999, 1.0, 2.999999, 3.0, 3.2, math.nan]
    points = torch.zeros(len(places), 3, dtype=torch.float64)
    points[:, 0] = torch.tensor(places, dtype=torch.float64)
    # 3.2 cells are 3.
    given = (1.0, 1.0, 1.0), (0.0, 0.0, 0.0, 3.2, 1.0, 1.0)
    voxels, coordinates, counts = voxelize.reference(points, *given, 2, 10)
    assert coordinates.tolist() == [[0, 0, 0], [0, 0, 1], [0, 0, 2]]
    assert counts.tolist() == [2, 1, 1]
    assert voxels[:, 0, 0].tolist() == [0.0, 1.0, 2.999999]


def test_coordinates_are_z_y_x() -> None:
    points = torch.tensor([[0.5, 1.5, 2.5]])
    given = (1.0, 1.0, 1.0), (0.0, 0.0, 0.0, 4.0, 4.0, 4.0)
    assert voxelize.reference(points, *given, 1, 1)[1].tolist() == [[2, 1, 0]]


def test_a_cell_is_that_of_double_precision_in_every_dtype() -> None:
    # In single precision, 0.3 divided by 0.1 is 3, and 0.7 divided by 0.1 is 7.
    points = torch.tensor([[0.3, 0.7, 0.0]])
    given = (0.1, 0.1, 0.1), (0.0, 0.0, 0.0, 1.0, 1.0, 1.0)
    wide = voxelize.reference(points.double(), *given, 1, 1)
    assert torch.equal(voxelize.reference(points, *given, 1, 1)[1], wide[1])
    assert wide[1].tolist() == [[0, math.floor(points[0, 1].item() / 0.1), 3]]


def test_too_many_cells_along_an_axis_are_an_error() -> None:
    points, far = torch.zeros(1, 3), (0.0, 0.0, 0.0, 1.0, 1.0, 3e6)
    with pytest.raises(ValueError, match="more than 2097152 cells along z"):
        voxelize.reference(points, (1.0, 1.0, 1.0), far, 1, 1)


@pytest.mark.slow  # compiles
def test_the_kernel_says_the_same_of_too_many_cells() -> None:
    points, far = torch.zeros(1, 3), (0.0, 0.0, 0.0, 1.0, 1.0, 3e6)
    with pytest.raises(RuntimeError, match="more than 2097152 cells along z"):
        voxelize(points, (1.0, 1.0, 1.0), far, 1, 1)
    with pytest.raises(RuntimeError, match=r"'voxel_size\[1\]' is 0.0, expected 0 < value"):
        voxelize(points, (1.0, 0.0, 1.0), far, 1, 1)


@pytest.mark.slow  # compiles
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.float16, torch.bfloat16])
def test_the_kernel_gives_the_bits_of_the_loop(dtype: torch.dtype) -> None:
    points = cloud(3000, 1, dtype)
    for given in (limits(5, 40), limits(200, 1000)):
        expected = point_by_point(points, **given)
        torch.testing.assert_close(voxelize(points, **given), expected, rtol=0, atol=0)


@pytest.mark.slow  # compiles
def test_a_kept_point_has_the_gradient_of_its_copy() -> None:
    points = cloud(200, dtype=torch.float64).requires_grad_()
    voxels, _, counts = voxelize(points, **limits(3, 20))
    grad = torch.randn_like(voxels)
    (found,) = torch.autograd.grad(voxels, points, grad)
    kept = [
        (int((points == row).all(1).nonzero()[0]), grad[voxel, rank])
        for voxel, count in enumerate(counts.tolist())
        for rank, row in enumerate(voxels[voxel, :count])
    ]
    expected = torch.zeros_like(points)
    for number, row in kept:
        expected[number] = row
    assert torch.equal(found, expected)
    # Moved a little, no point of these leaves its cell.
    few = cloud(20, dtype=torch.float64).requires_grad_()
    assert torch.autograd.gradcheck(lambda x: voxelize(x, **limits(3, 20))[0], few)


#: By what goes wrong: the file, what stands there, what is planted, and the row that finds it.
MISTAKES = {
    "a point on the upper bound is inside": (
        *("grid.h", "place < static_cast<double>(cells[axis])"),
        *("place <= static_cast<double>(cells[axis])", "reference"),
    ),
    "one point more than a voxel holds": (
        *("voxelize.cpp", "counts[voxel] < a.max_points", "counts[voxel] <= a.max_points"),
        "bounds",
    ),
    "coordinates come in reverse": ("voxelize.cpp", "3 * v", "3 * (count - 1 - v)", "reference"),
    "halves of cells are rounded up": ("grid.h", "whole % 2 != 0", "true", "reference"),
    "what is behind the last point was never written": (
        *("voxelize.cpp", "begin * each, voxels", "begin * each + a.C, voxels", "bounds"),
    ),
    "a cell's first point is whichever comes first": (
        *("voxelize.cu", "atomicMin(firsts + at, static_cast<unsigned>(i))"),
        *("atomicCAS(firsts + at, ~0u, static_cast<unsigned>(i))", "cuda-on-cpu"),
    ),
    "a cell is written into the table without an atomic operation": (
        *("voxelize.cu", "atomicCAS(table + at, kEmpty, own)"),
        *("table[at] == kEmpty ? (table[at] = own, kEmpty) : table[at]", "cuda-on-cpu"),
    ),
}


@pytest.mark.slow(cases=2)
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_planted_mistake_in_voxelize_is_found(mistake: str, tmp_path: Path) -> None:
    file, right, wrong, row = MISTAKES[mistake]
    shutil.copytree(GALLERY, tmp_path / "gallery")
    folder = tmp_path / "gallery" / "voxelize"
    text = (folder / file).read_text(encoding="utf-8")
    assert right in text
    (folder / file).write_text(text.replace(right, wrong), encoding="utf-8")
    command = [
        *(sys.executable, "-m", "opsmith", "check", str(folder / "voxelize.py")),
        *("--check", row, "--examples", "8", "--seed", "0", "-j", "1"),
    ]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"check '{row}' failed" in done.stdout
