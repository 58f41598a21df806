from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from torch import Tensor

import opsmith
from gallery.bev_pool_v2 import published
from gallery.bev_pool_v2.bev_pool_v2 import bev_pool_v2, bev_pool_v2_backward
from gallery.bev_pool_v2.geometry import Grid, lift, pool_ranks, surround_cameras
from gallery.bev_pool_v2.inputs import camera_case, cases

pytestmark = pytest.mark.slow  # its kernels, compiled as users compile them

CASES = list(cases(torch.float64, 0))


def by_hand(case: dict[str, Any]) -> Tensor:
    """The contract's sentence, point by point."""
    depth, feat = case["depth"].flatten(), case["feat"].flatten(0, 3)
    z, y, x = case["bev_size"]
    out = feat.new_zeros(case["feat"].shape[0] * z * y * x, feat.shape[1])
    for start, length in zip(case["interval_starts"], case["interval_lengths"], strict=True):
        for p in range(int(start), int(start + length)):
            weight = depth[case["ranks_depth"][p]]
            out[case["ranks_bev"][p]] += weight * feat[case["ranks_feat"][p]]
    return out.reshape(-1, z, y, x, feat.shape[1])


@contextmanager
def threads(count: int) -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    yield
    torch.set_num_threads(before)


def one_cell(dtype: torch.dtype, points: int) -> dict[str, Any]:
    zeros = torch.zeros(points, dtype=torch.int32)
    return {
        "depth": torch.ones(1, 1, 1, 1, 1, dtype=dtype),
        "feat": torch.ones(1, 1, 1, 1, 17, dtype=dtype),
        "ranks_depth": zeros,
        "ranks_feat": zeros,
        "ranks_bev": zeros,
        "interval_starts": torch.tensor([0], dtype=torch.int32),
        "interval_lengths": torch.tensor([points], dtype=torch.int32),
        "bev_size": (1, 1, 2),
    }


@pytest.mark.parametrize("number", range(len(CASES)))
def test_every_decision_of_the_contract(number: int) -> None:
    case = CASES[number]
    expected = by_hand(case)
    torch.testing.assert_close(bev_pool_v2.reference(**case), expected)
    torch.testing.assert_close(bev_pool_v2(**case), expected)


@pytest.mark.slow(cases=2)
@pytest.mark.parametrize("number", range(len(CASES)))
def test_the_backward_is_the_gradient_of_the_forward(number: int) -> None:
    case = CASES[number]
    rest = list(case.values())[2:]
    leaves = tuple(case[name].clone().requires_grad_() for name in ("depth", "feat"))
    pooled = bev_pool_v2(*leaves, *rest)
    grad = torch.randn_like(pooled)
    expected = torch.autograd.grad(bev_pool_v2.reference(*leaves, *rest), leaves, grad)
    torch.testing.assert_close(torch.autograd.grad(pooled, leaves, grad), expected)


@pytest.mark.slow(cases=2)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
@pytest.mark.parametrize("order", ["sorted", "shuffled"])
def test_every_bit_is_the_same_for_any_number_of_threads(dtype: torch.dtype, order: str) -> None:
    grid = Grid((-20.0, -20.0, -3.0), (2.0, 2.0, 6.0), (20, 20, 1))
    case = camera_case(dtype, 0, feature_size=(4, 11), bins=20, channels=33, grid=grid)
    if order == "shuffled":
        mixed = torch.randperm(len(case["ranks_bev"]))
        case |= {name: case[name][mixed] for name in ("ranks_depth", "ranks_feat", "ranks_bev")}
        case["ranks_depth"] %= 100
    grad = torch.randn(1, *case["bev_size"], 33).to(dtype)
    results = []
    for count in (1, 2, 5):
        with threads(count):
            gradients = bev_pool_v2_backward(grad, *list(case.values())[:-1])
            results.append((bev_pool_v2(**case), *gradients))
    for other in results[1:]:
        for mine, first in zip(other, results[0], strict=True):
            assert torch.equal(mine, first)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_types_are_summed_in_float(dtype: torch.dtype) -> None:
    # One more point at a time, float16 would stop at 2048, bfloat16 at 256.
    case = one_cell(dtype, 8192)
    assert torch.equal(bev_pool_v2(**case)[..., 0, :], torch.full((1, 1, 1, 17), 8192.0).to(dtype))
    del case["bev_size"]
    depth_grad, feat_grad = bev_pool_v2_backward(torch.ones(1, 1, 1, 2, 17, dtype=dtype), **case)
    assert torch.equal(feat_grad, torch.full((1, 1, 1, 1, 17), 8192.0).to(dtype))
    case["feat"] /= 32
    depth_grad, _ = bev_pool_v2_backward(torch.ones(1, 1, 1, 2, 17, dtype=dtype), **case)
    assert depth_grad.item() == 17 * 256


def test_special_values_of_half_types_come_through() -> None:
    case = one_cell(torch.float16, 1)
    values = torch.tensor([float("inf"), float("-inf"), float("nan"), 6e-8, -6e-8, 65504.0, -0.0])
    case["feat"] = values.half().tile(5)[None, None, None, None]
    expected = (case["feat"].float() + 0.0).half()[0]
    pooled = bev_pool_v2(**(case | {"bev_size": (1, 1, 1)}))[0]
    assert torch.equal(pooled.nan_to_num(7.0), expected.nan_to_num(7.0))


def test_what_no_interval_holds_adds_nothing_even_where_it_is_infinite() -> None:
    case = one_cell(torch.float32, 3)
    case["ranks_depth"], case["ranks_feat"] = (torch.arange(3, dtype=torch.int32) for _ in "df")
    case["depth"] = torch.tensor([2.0, torch.inf, 3.0]).reshape(1, 1, 1, 1, 3)
    case["feat"] = torch.tensor([1.0, torch.inf, 5.0]).reshape(1, 1, 1, 3, 1)
    case["interval_starts"] = torch.tensor([0, 2], dtype=torch.int32)
    case["interval_lengths"] = torch.tensor([1, 1], dtype=torch.int32)
    right = torch.tensor([17.0, 0.0]).reshape(1, 1, 1, 2, 1)
    torch.testing.assert_close(bev_pool_v2(**case), right)
    torch.testing.assert_close(bev_pool_v2.reference(**case), right)
    del case["bev_size"]
    grad = torch.ones(1, 1, 1, 2, 1)
    for backward in (bev_pool_v2_backward, bev_pool_v2_backward.reference):
        depth_grad, feat_grad = backward(grad, **case)
        assert depth_grad.flatten().tolist() == [1.0, 0.0, 5.0]
        assert feat_grad.flatten().tolist() == [2.0, 0.0, 3.0]


def test_a_length_beyond_the_points_is_refused() -> None:
    case = dict(CASES[0])
    case["interval_lengths"] = case["interval_lengths"] + 1
    with pytest.raises(
        RuntimeError, match=r"argument 'interval_lengths' has value \d+ at index 29, expected 0 <="
    ):
        bev_pool_v2(**case)


def test_a_pixel_out_of_range_is_refused() -> None:
    case = dict(CASES[0])
    case["ranks_feat"] = case["ranks_feat"].clone()
    case["ranks_feat"][17] = 24
    message = r"'ranks_feat' has value 24 at index 17, expected 0 <= value < 24 \(B\*N\*H\*W\)"
    with pytest.raises(RuntimeError, match=message):
        bev_pool_v2(**case)


def test_second_derivatives_and_forward_mode() -> None:
    case = next(case for case in CASES if case["feat"].shape[4] == 1)
    rest = list(case.values())[2:]
    leaves = tuple(case[name].clone().requires_grad_() for name in ("depth", "feat"))
    assert torch.autograd.gradgradcheck(lambda d, f: bev_pool_v2(d, f, *rest), leaves)
    _, along = torch.func.jvp(
        lambda d: bev_pool_v2(d, case["feat"], *rest), (case["depth"],), (case["depth"],)
    )
    torch.testing.assert_close(along, bev_pool_v2(**case))


def test_the_published_function_has_channels_first() -> None:
    case = dict(CASES[1])
    frames, channels = case["feat"].shape[0], case["feat"].shape[4]
    size = case.pop("bev_size")
    pooled = published.bev_pool_v2(**case, bev_feat_shape=(frames, *size, channels))
    assert pooled.shape == (frames, channels, *size)
    assert pooled.is_contiguous()
    assert torch.equal(pooled, bev_pool_v2(**case, bev_size=size).movedim(4, 1))
    with pytest.raises(opsmith.ArgumentError, match="C=3, but feat has B=2 and C=16"):
        published.bev_pool_v2(**case, bev_feat_shape=(frames, *size, 3))


def test_the_published_function_casts_as_published() -> None:
    case = dict(CASES[1])
    shape = (case["feat"].shape[0], *case.pop("bev_size"), case["feat"].shape[4])
    expected = published.bev_pool_v2(**case, bev_feat_shape=shape)
    wide = {
        name: value.long() if name.startswith(("ranks", "interval")) else value
        for name, value in case.items()
    }
    assert torch.equal(published.bev_pool_v2(**wide, bev_feat_shape=shape), expected)
    mixed = {**case, "depth": case["depth"].half(), "feat": case["feat"].float()}
    pooled = published.bev_pool_v2(**mixed, bev_feat_shape=shape)
    assert pooled.dtype is torch.float32
    torch.testing.assert_close(pooled, expected.float(), rtol=2e-3, atol=2e-3)


def test_geometry_puts_a_pixel_where_the_camera_looks() -> None:
    # The centre of an image looks along the camera's axis: 10 m ahead of it, at its height.
    cameras = surround_cameras()
    u, v = cameras.intrinsics[0, 1, :2, 2].tolist()
    ahead = lift(torch.tensor([[[[u, v, 10.0]]]]), cameras)[0, :, 0, 0, 0]
    torch.testing.assert_close(ahead[1], torch.tensor([11.7, 0.0, 1.5]))
    torch.testing.assert_close(ahead[4], torch.tensor([-10.0, 0.0, 1.5]))


def test_ranks_are_what_the_contract_calls_fast() -> None:
    grid = Grid((-8.0, -8.0, -2.0), (1.0, 2.0, 2.0), (16, 8, 2))
    points = torch.rand(2, 3, 5, 2, 4, 3) * 20 - 10
    ranks = pool_ranks(points, grid)
    assert torch.equal(ranks.ranks_bev, ranks.ranks_bev.sort().values)
    assert int(ranks.interval_lengths.sum()) == len(ranks.ranks_bev)
    for start, length in zip(ranks.interval_starts, ranks.interval_lengths, strict=True):
        assert len(ranks.ranks_bev[start : start + length].unique()) == 1
    p = 7
    index = ranks.ranks_depth[p].long()
    frame, camera, _, row, column = torch.unravel_index(index, (2, 3, 5, 2, 4))
    assert ranks.ranks_feat[p] == ((frame * 3 + camera) * 2 + row) * 4 + column
    x, y, z = points.reshape(-1, 3)[index].tolist()
    cell = ((int(frame) * 2 + (z + 2) // 2) * 8 + (y + 8) // 2) * 16 + (x + 8) // 1
    assert ranks.ranks_bev[p] == cell


def test_nothing_in_the_grid_gives_no_points() -> None:
    grid = Grid((100.0, 0.0, 0.0), (1.0, 1.0, 1.0), (2, 2, 2))
    assert [len(t) for t in pool_ranks(torch.zeros(1, 1, 2, 1, 1, 3), grid)] == [0] * 5


@pytest.mark.long
def test_the_example_in_jax_learns_by_the_kernels_gradient(tmp_path) -> None:
    pytest.importorskip("jax")
    from gallery.bev_pool_v2 import in_jax

    opsmith.export(bev_pool_v2, target="jax", out=tmp_path / "dist", say=None, verify=False)
    loaded = opsmith.load(tmp_path / "dist")
    backward = loaded["bev::bev_pool_v2_backward"].library
    before = backward.calls()
    losses = in_jax.fit(loaded.ops.bev_pool_v2, in_jax.scene(), steps=10)
    assert losses[-1] < 0.5 * losses[0]
    assert backward.calls() == before + 10
