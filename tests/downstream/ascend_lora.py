"""Kernels in Ascend C of SGLang's (Apache-2.0) for adapters of different ranks, as they are."""

from collections.abc import Iterator
from typing import Any

import torch
from ascend_direct import register
from fetched import sources
from jaxtyping import Float16, Float32, Int32
from torch import Tensor

import opsmith

LORA = (
    sources("sgl-project/sgl-kernel-npu", "f425bdf1e191a7682296d3b2ed0b927d4e37d671")
    / "csrc/lora/op_kernel"
)


def adapter(indices: Tensor, lengths: Tensor, tokens: int) -> Tensor:
    """Give the adapter of each of the tokens, or -1: (tokens,)."""
    chosen = indices.long().repeat_interleave(lengths.long())[:tokens]
    return torch.nn.functional.pad(chosen, (0, tokens - len(chosen)), value=-1)


@opsmith.op("others::run_sgemmv_shrink")
def run_sgemmv_shrink(
    x: Float16[Tensor, "B H"],
    weight: Float16[Tensor, "L R H"],
    indices: Int32[Tensor, "Q"],
    lengths: Int32[Tensor, "Q"],
    ranks: Int32[Tensor, "L"],
    scales: Float16[Tensor, "L"],
) -> Float32[Tensor, "B R"]:
    """Multiply each token with the first rows of its adapter's matrix, as many as its rank is."""
    exact = torch.promote_types(x.dtype, torch.float32)
    at = adapter(indices, lengths, len(x))
    chosen = weight[at.clamp(min=0)].to(exact) * scales.to(exact)[at.clamp(min=0), None, None]
    products = (chosen @ x.to(exact)[:, :, None])[..., 0]
    used = torch.arange(weight.shape[1]) < ranks[at.clamp(min=0), None]
    return torch.where(used & (at >= 0)[:, None], products, 0)


register(
    run_sgemmv_shrink,
    f'#include "{LORA}/sgemmv_shrink_kernel.cpp"',
    """
  std::fill_n(a.out.data(), a.out.numel(), 0.0f);
  const uint32_t each = (a.B + 39) / 40;
  sgemmv_shrink_half<<<(a.B + each - 1) / each, nullptr, opsmith::npu_stream(ctx)>>>(
      gm(a.x), gm(a.weight), gm(a.indices), a.Q, gm(a.lengths), a.Q, gm(a.ranks), a.L,
      gm(a.scales), a.L, gm(a.out), a.B, each, a.H, a.R);
""",
)


@opsmith.op("others::run_sgemmv_expand")
def run_sgemmv_expand(
    x: Float32[Tensor, "B X"],
    weight: Float16[Tensor, "L F R"],
    indices: Int32[Tensor, "Q"],
    lengths: Int32[Tensor, "Q"],
    ranks: Int32[Tensor, "L"],
    offsets: Int32[Tensor, "S"],
    y: Float16[Tensor, "B F"],
) -> Float16[Tensor, "B F"]:
    """Add to each slice of a token its part of `x` times its adapter's matrix."""
    exact = torch.promote_types(x.dtype, torch.float32)
    out = y.to(exact, copy=True)
    for token, at in enumerate(adapter(indices, lengths, len(x)).tolist()):
        rank = int(ranks[at]) if at >= 0 else 0
        for part in range(len(offsets) - 1):
            rows = slice(int(offsets[part]), int(offsets[part + 1]))
            values = x[token, rank * part : rank * (part + 1)].to(exact)
            out[token, rows] += weight[at, rows, :rank].to(exact) @ values
    return out.to(y.dtype)


register(
    run_sgemmv_expand,
    f'#include "{LORA}/sgemmv_expand_kernel.cpp"',
    """
  std::copy_n(a.y.data(), a.y.numel(), a.out.data());
  const uint32_t each = (a.B + 39) / 40;
  const uint32_t blocks = (a.B * (a.S - 1) + each - 1) / each;
  sgemmv_expand_half<<<blocks, nullptr, opsmith::npu_stream(ctx)>>>(
      gm(a.x), gm(a.weight), gm(a.indices), a.Q, gm(a.lengths), a.Q, gm(a.ranks), a.L,
      gm(a.offsets), a.S, gm(a.out), gm(a.out), a.B, each, a.R, a.F);
""",
)


CASES = ((2, 2, [16]), (3, 4, [16, 64, 32]), (4, 3, [32, 0, 16]), (41, 2, [16]))


def drawn(seed: int) -> Iterator[tuple[torch.Generator, int, dict[str, Tensor]]]:
    random = torch.Generator().manual_seed(seed)
    for requests, most, ranks in CASES:
        lengths = torch.randint(1, most, (requests,), generator=random, dtype=torch.int32)
        indices = torch.randint(-1, len(ranks), (requests,), generator=random, dtype=torch.int32)
        indices[0] = indices[-1] = 0
        shared = {"indices": indices, "lengths": lengths}
        yield random, int(lengths.sum()), {**shared, "ranks": torch.tensor(ranks).int()}


@run_sgemmv_shrink.register_cases(only=True)
def _(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    for hidden, (random, tokens, shared) in zip((64, 1024, 12288, 64), drawn(seed), strict=True):
        ranks = shared["ranks"]
        weight = torch.randn(len(ranks), int(ranks.max()), hidden, generator=random)
        yield {
            "x": torch.randn(tokens, hidden, generator=random).half(),
            "weight": weight.half(),
            **shared,
            "scales": torch.tensor([0.5, 2, 1])[: len(ranks)].half(),
        }


@run_sgemmv_expand.register_cases(only=True)
def _(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    slices = ([0, 128], [0, 1024, 1152], [0, 4096, 4224, 4736], [0, 128, 256, 384])
    for offsets, (random, tokens, shared) in zip(slices, drawn(seed), strict=True):
        ranks, most = shared["ranks"], int(shared["ranks"].max())
        weight = torch.randn(len(ranks), offsets[-1], most, generator=random)
        yield {
            "x": torch.randn(tokens, most * (len(offsets) - 1), generator=random),
            "weight": weight.half(),
            **shared,
            "offsets": torch.tensor(offsets).int(),
            "y": torch.randn(tokens, offsets[-1], generator=random).half(),
        }
