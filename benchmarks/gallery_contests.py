"""Contests of the gallery with what users of PyTorch write, at sizes that networks have."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

Call = Callable[..., Any]


@dataclass(frozen=True)
class Contest:
    """An operator, what PyTorch's users write in its place, and arguments."""

    size: str
    theirs: Call
    arguments: Callable[[torch.dtype], tuple[Any, ...]]
    #: The arguments that a gradient is taken for, by place.
    leaves: tuple[int, ...] = ()
    #: The arguments that are written, by place.
    written: tuple[int, ...] = ()
    #: Whether it passes over its memory once, in one graph; loops over data do not.
    passes_once: bool = True
    #: What is called where it is not the operator itself.
    ours: Call | None = None
    #: What is compiled where it is not what eager mode runs: compilers unroll its loop.
    compiled: Call | None = None
    #: How often it multiplies and adds, forward, where that is its limit.
    multiply_adds: int = 0


def swiglu(x: Tensor) -> Tensor:
    gate, value = x.chunk(2, dim=-1)
    return functional.silu(gate) * value


def rope(x: Tensor, positions: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    cos, sin = cos[positions].unsqueeze(-2), sin[positions].unsqueeze(-2)
    a, b = x.chunk(2, dim=-1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)


def rope_arguments(dtype: torch.dtype) -> tuple[Any, ...]:
    from gallery.rope.rope import tables

    return (
        torch.randn(1024, 32, 128, dtype=dtype),
        torch.arange(1024),
        *tables(4096, 64, 1e4, dtype),
    )


def rms_norm(x: Tensor, weight: Tensor) -> Tensor:
    return functional.rms_norm(x, x.shape[-1:], weight, 1e-6)


def add_rms_norm(x: Tensor, residual: Tensor, weight: Tensor) -> Tensor:
    residual += x
    return functional.rms_norm(residual, x.shape[-1:], weight, 1e-6)


def segment_reduce(x: Tensor, offsets: Tensor) -> Tensor:
    return torch.segment_reduce(x, "sum", offsets=offsets, axis=0, initial=0)


def segment_arguments(dtype: torch.dtype) -> tuple[Any, ...]:
    """A graph of 100,000 edges with 64 channels, edges by their target, degrees as they come."""
    targets = torch.randint(10_000, (100_000,))
    offsets = functional.pad(targets.bincount(minlength=10_000).cumsum(0), (1, 0))
    return torch.randn(100_000, 64, dtype=dtype), offsets


def nms(boxes: Tensor, scores: Tensor) -> Tensor:
    """As it is written without torchvision: the matrix of all overlaps, then box after box."""
    order = scores.argsort(descending=True)
    x1, y1, x2, y2 = boxes[order].unbind(1)
    areas = (x2 - x1) * (y2 - y1)
    width = (torch.minimum(x2[:, None], x2) - torch.maximum(x1[:, None], x1)).clamp_(min=0)
    height = (torch.minimum(y2[:, None], y2) - torch.maximum(y1[:, None], y1)).clamp_(min=0)
    both = width * height
    overlaps = both / (areas[:, None] + areas - both) > 0.5
    stays = torch.ones_like(order, dtype=torch.bool)
    for place in range(len(order)):
        if stays[place]:
            stays[place + 1 :] &= ~overlaps[place, place + 1 :]
    return order[stays]


def nms_arguments(dtype: torch.dtype) -> tuple[Any, ...]:
    from gallery.nms.nms import boxes_of

    return tuple(boxes_of(2000, dtype=dtype).values())


def moe_gating(logits: Tensor, k: int) -> tuple[Tensor, ...]:
    values, experts = logits.topk(k, dim=1)
    flat = experts.reshape(-1)
    offsets = functional.pad(flat.bincount(minlength=logits.shape[1]).cumsum(0), (1, 0))
    choices = flat.argsort(stable=True)
    return values.softmax(1), experts.int(), offsets.int(), choices.int()


def grouped_linear(x: Tensor, weight: Tensor, offsets: Tensor) -> Tensor:
    if x.dtype == torch.bfloat16:
        return functional.grouped_mm(x, weight, offs=offsets[1:])
    parts = x.split(offsets.diff().tolist())
    return torch.cat([part @ own for part, own in zip(parts, weight, strict=True)])


def rows_of_experts(dtype: torch.dtype) -> tuple[Any, ...]:
    """1,024 tokens, two of 16 experts for each, and as many rows as come for an expert."""
    experts = torch.rand(1024, 16).topk(2).indices
    counts = experts.flatten().bincount(minlength=16)
    offsets = functional.pad(counts.cumsum(0), (1, 0)).int()
    return torch.randn(2048, 1024, dtype=dtype), torch.randn(16, 1024, 1408, dtype=dtype), offsets


#: A grid of pillars in front of a car, points of a voxel, and voxels.
PILLARS = (0.16, 0.16, 4.0), (0.0, -39.68, -3.0, 69.12, 39.68, 1.0), 32, 40_000


def voxelize(
    points: Tensor, size: tuple[float, ...], bounds: tuple[float, ...], most: int, limit: int
) -> tuple[Tensor, ...]:
    """As it is written without mmcv: unique numbers of cells, and a sort of the points by them."""
    low, high = torch.tensor(bounds).split(3)
    cells = ((high - low) / torch.tensor(size)).round()
    places = ((points[:, :3] - low) / torch.tensor(size)).floor()
    inside = ((places >= 0) & (places < cells)).all(1)
    points, (x, y, z) = points[inside], places[inside].long().unbind(1)
    keys = (z * int(cells[1]) + y) * int(cells[0]) + x
    _, numbers, counts = keys.unique(return_inverse=True, return_counts=True)
    order = numbers.argsort(stable=True)
    firsts = order[counts.cumsum(0) - counts].sort()
    ranks = torch.empty_like(firsts.indices)
    ranks[firsts.indices] = torch.arange(len(ranks))
    places_in = torch.arange(len(order)) - (counts.cumsum(0) - counts)[numbers[order]]
    own = ranks[numbers[order]]
    kept = (places_in < most) & (own < limit)
    voxels = points.new_zeros(min(len(counts), limit), most, points.shape[1])
    voxels[own[kept], places_in[kept]] = points[order[kept]]
    chosen = firsts.values[:limit]
    coordinates = torch.stack((z, y, x), 1)[chosen].int()
    return voxels, coordinates, counts[firsts.indices[:limit]].clamp(max=most).int()


def cloud(dtype: torch.dtype) -> tuple[Any, ...]:
    from gallery.voxelize.voxelize import cloud

    return cloud(120_000, dtype=dtype), *PILLARS


def linear_cross_entropy(hidden: Tensor, weight: Tensor, targets: Tensor) -> Tensor:
    return functional.cross_entropy(hidden @ weight.t(), targets, reduction="none")


def words(dtype: torch.dtype) -> tuple[Any, ...]:
    targets = torch.randint(32_000, (384,))
    return torch.randn(384, 512, dtype=dtype), torch.randn(32_000, 512, dtype=dtype) / 20, targets


def selective_scan(*arguments: Tensor) -> Tensor:
    """Step after step, as models have it where `mamba_ssm` is not there."""

    def scanned(rates: Tensor, inputs: Tensor) -> Tensor:
        states = [torch.zeros_like(inputs[..., 0])]
        for rate, entering in zip(rates.unbind(-1), inputs.unbind(-1), strict=True):
            states.append(rate * states[-1] + entering)
        return torch.stack(states[1:], -1)

    return scanned_by(scanned, *arguments)


def selective_scan_by_doubling(*arguments: Tensor) -> Tensor:
    """Over 1, 2, 4 … steps at once, in operations on whole tensors."""

    def scanned(rates: Tensor, states: Tensor) -> Tensor:
        distance = 1
        while distance < states.shape[-1]:
            before = functional.pad(states[..., :-distance], (distance, 0))
            states = rates * before + states
            rates = rates * functional.pad(rates[..., :-distance], (distance, 0), value=1.0)
            distance *= 2
        return states

    return scanned_by(scanned, *arguments)


def scanned_by(
    scanned: Call,
    u: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor,
    z: Tensor,
    bias: Tensor,
) -> Tensor:
    steps = functional.softplus(delta.float() + bias[:, None])
    rates = (steps[:, :, None] * A[:, :, None]).exp()
    states = scanned(rates, (steps * u)[:, :, None] * B)
    y = (states * C).sum(2) + D[:, None] * u
    return (y * functional.silu(z)).to(u.dtype)


def ours_selective_scan(*arguments: Tensor) -> Tensor:
    from gallery.selective_scan.mamba import selective_scan_fn

    return selective_scan_fn(*arguments, delta_softplus=True)


def mamba_layer(dtype: torch.dtype) -> tuple[Any, ...]:
    """The arguments in a layer of Mamba-130m: one sequence, 1,536 channels, 16 numbers each."""
    u, delta, z = (torch.randn(1, 1536, 512, dtype=dtype) for _ in range(3))
    B, C = (torch.randn(1, 1, 16, 512, dtype=dtype) for _ in range(2))
    A = -torch.arange(1.0, 17).repeat(1536, 1)
    return u, delta, A, B, C, torch.ones(1536), z, torch.randn(1536) - 4


def flash_attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    """PyTorch's own, which has heads before tokens."""
    heads_first = (one.transpose(1, 2) for one in (query, key, value))
    return functional.scaled_dot_product_attention(
        *heads_first, is_causal=True, enable_gqa=True
    ).transpose(1, 2)


def ours_flash_attention(query: Tensor, key: Tensor, value: Tensor) -> Tensor:
    from gallery.flash_attention.flash_attention import flash_attention

    means: Tensor = flash_attention(query, key, value, query.shape[-1] ** -0.5, True)[0]
    return means


def paged_attention(
    query: Tensor, keys: Tensor, values: Tensor, pages: Tensor, lengths: Tensor, scale: float
) -> Tensor:
    """Gather the pages, and attend by PyTorch's own."""
    tokens = pages.shape[1] * keys.shape[1]
    gathered = (one[pages].flatten(1, 2).transpose(1, 2) for one in (keys, values))
    there = (torch.arange(tokens) < lengths[:, None])[:, None, None]
    return functional.scaled_dot_product_attention(
        query[:, :, None], *gathered, attn_mask=there, scale=scale, enable_gqa=True
    ).squeeze(2)


def cache(dtype: torch.dtype) -> tuple[Any, ...]:
    """16 sequences of up to 2,048 tokens in pages of 16: 32 heads, 8 of keys, 128 columns."""
    keys, values = torch.randn(2, 2048, 16, 8, 128, dtype=dtype)
    pages = torch.randperm(2048)[: 16 * 128].reshape(16, 128).int()
    lengths = torch.randint(512, 2048, (16,)).int()
    return torch.randn(16, 32, 128, dtype=dtype), keys, values, pages, lengths, 128**-0.5


def int4_linear(
    x: Tensor, packed: Tensor, scales: Tensor, own: Tensor, own_scales: Tensor
) -> Tensor:
    """PyTorch's own, whose weights are packed in another order, and have zero points."""
    group = x.shape[1] // scales.shape[1]
    product: Tensor = torch.ops.aten._weight_int4pack_mm_for_cpu(x, own, group, own_scales)
    return product


def ours_int4_linear(x: Tensor, packed: Tensor, scales: Tensor, *_: Tensor) -> Tensor:
    from gallery.int4_linear.int4_linear import int4_linear

    product: Tensor = int4_linear(x, packed, scales)
    return product


def quantised(dtype: torch.dtype) -> tuple[Any, ...]:
    """One token, a layer of 4,096 by 11,008, groups of 128 weights; for both ways to pack them."""
    weight = torch.randint(16, (11008, 4096), dtype=torch.int32)
    scales = (torch.rand(11008, 32) / 100).to(dtype)
    packed = (weight[:, ::2] | weight[:, 1::2] << 4).to(torch.uint8)
    own = torch.ops.aten._convert_weight_to_int4pack_for_cpu(weight, 1)
    own_scales = torch.stack((scales.T, torch.zeros_like(scales.T)), 2).contiguous()
    return torch.randn(1, 4096, dtype=dtype), packed, scales, own, own_scales


def normal(*shapes: tuple[int, ...]) -> Callable[[torch.dtype], tuple[Any, ...]]:
    return lambda dtype: tuple(torch.randn(shape, dtype=dtype) for shape in shapes)


CONTESTS = {
    "swiglu": Contest("(1,024, 2 · 11,008)", swiglu, normal((1024, 22016)), (0,)),
    "rope": Contest("(1,024, 32, 128)", rope, rope_arguments, (0,)),
    "rms_norm": Contest("(2,048, 4,096)", rms_norm, normal((2048, 4096), (4096,)), (0, 1)),
    "add_rms_norm": Contest(
        "(2,048, 4,096)",
        add_rms_norm,
        normal((2048, 4096), (2048, 4096), (4096,)),
        written=(1,),
    ),
    "segment_reduce": Contest(
        "(100,000, 64) in 10,000 segments", segment_reduce, segment_arguments, (0,)
    ),
    "selective_scan": Contest(
        "(1, 1,536, 512), 16 numbers a state",
        selective_scan,
        mamba_layer,
        (0, 1, 2, 3, 4, 5, 6, 7),
        ours=ours_selective_scan,
        compiled=selective_scan_by_doubling,
    ),
    "linear_cross_entropy": Contest(
        "384 tokens, 32,000 words, 512 columns",
        linear_cross_entropy,
        words,
        (0, 1),
        passes_once=False,
    ),
    "grouped_linear": Contest(
        "2,048 rows of 1,024, 16 experts, 1,408 columns",
        grouped_linear,
        rows_of_experts,
        (0, 1),
        passes_once=False,
        multiply_adds=2048 * 1024 * 1408,
    ),
    "flash_attention": Contest(
        "512 causal queries, 16 heads, 4 of keys, 64 columns",
        flash_attention,
        normal((1, 512, 16, 64), (1, 512, 4, 64), (1, 512, 4, 64)),
        (0, 1, 2),
        passes_once=False,
        ours=ours_flash_attention,
        multiply_adds=16 * 512 * 512 * 64,
    ),
    "paged_attention": Contest(
        "16 sequences of 512 to 2,048 tokens, 32 heads, 8 of keys",
        paged_attention,
        cache,
        passes_once=False,
    ),
    "int4_linear": Contest(
        "1 token, 4,096 by 11,008, groups of 128",
        int4_linear,
        quantised,
        passes_once=False,
        ours=ours_int4_linear,
    ),
    "voxelize": Contest("120,000 points, pillars of 0.16 m", voxelize, cloud),
    "moe_gating": Contest(
        "4,096 tokens, 8 of 128 experts",
        moe_gating,
        lambda dtype: (torch.randn(4096, 128, dtype=dtype), 8),
        passes_once=False,
    ),
    "nms": Contest("2,000 boxes", nms, nms_arguments, passes_once=False),
}
