"""Kernels in Ascend C of Ascend/samples and vLLM Ascend (both Apache-2.0), as they are."""

from collections.abc import Iterator
from typing import Annotated, Any

import torch
from fetched import sources
from jaxtyping import Float16, Float32, Int32, Int64
from torch import Tensor

import opsmith
from opsmith import Index

SAMPLES = (
    sources("Ascend/samples", "fc2aea93e48be8f8cee51d0c6c1b13a08155f83a")
    / "cplusplus/level1_single_api/4_op_dev/6_ascendc_custom_op"
)
VLLM = sources("vllm-project/vllm-ascend", "182b75ea84ff13ece27b57391331ef8935410aea") / "csrc"
SOURCE = """
#include <opsmith/ascendc.h>
#include "{name}.h"
{include}

void {name}(const opsmith::Context& ctx, const others::{name}_args& a) {{
  using opsmith::gm;
  {host}
}}
OPSMITH_KERNEL(others, {name}, npu)
"""


def register(operator: Any, include: str, host: str) -> None:
    """Register a source that includes a kernel, and calls it as its project does."""
    text = SOURCE.format(name=operator.signature.name, include=include, host=host)
    operator.register_kernel("npu", source=opsmith.cpp(text), language="ascendc")


@opsmith.op("others::run_add_custom")
def run_add_custom(
    x: Float16[Tensor, "16384"], y: Float16[Tensor, "16384"]
) -> Float16[Tensor, "16384"]:
    """Add two tensors of the only size that there is."""
    return x + y


# The sample is older than Ascend C's name, and has a function for where a core begins.
register(
    run_add_custom,
    f"""
namespace tik2 {{
using namespace AscendC;
template <typename T>
GM_ADDR ParamOffset(GM_ADDR at, int64_t count) {{
  return at + GetBlockIdx() * count * sizeof(T);
}}
}}  // namespace tik2
#include "{SAMPLES}/kernel_invocation/Add/add_custom.cpp"
""",
    "add_custom<<<8, nullptr, opsmith::npu_stream(ctx)>>>(gm(a.x), gm(a.y), gm(a.out));",
)


@opsmith.op("others::run_bgmv_shrink")
def run_bgmv_shrink(
    x: Float16[Tensor, "B H"],
    weight: Float16[Tensor, "L R H"],
    indices: Int64[Tensor, "B"],
    scale: float,
) -> Float32[Tensor, "B R"]:
    """Multiply each row with the matrix that it chooses, or give nothing for a negative index."""
    chosen = weight[indices.clamp(min=0)].to(torch.promote_types(x.dtype, torch.float32))
    products = (chosen @ x.to(chosen.dtype)[:, :, None])[..., 0] * scale
    return torch.where(indices[:, None] < 0, 0, products)


register(
    run_bgmv_shrink,
    f'#include "{VLLM}/kernels/bgmv_shrink.cpp"',
    """
  std::fill_n(a.out.data(), a.out.numel(), 0.0f);
  vllm_ascend::bgmv_shrink_impl(vllm_ascend::AscendType::FP16, opsmith::npu_stream(ctx), gm(a.x),
                                gm(a.weight), gm(a.indices), a.B, gm(a.out), a.B, (a.B + 39) / 40,
                                a.H, a.R, a.scale);
""",
)


@run_bgmv_shrink.register_cases(only=True)
def _(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    random = torch.Generator().manual_seed(seed)
    for batch, hidden, rank, adapters in ((1, 64, 8, 1), (3, 4096, 16, 2), (50, 12288, 8, 3)):
        yield {
            "x": torch.randn(batch, hidden, generator=random).half(),
            "weight": torch.randn(adapters, rank, hidden, generator=random).half(),
            "indices": torch.randint(-1, adapters, (batch,), generator=random),
            "scale": 0.5,
        }


@opsmith.op("others::run_bgmv_expand")
def run_bgmv_expand(
    x: Float32[Tensor, "B R"],
    weight: Float16[Tensor, "L H R"],
    indices: Int64[Tensor, "B"],
    y: Float16[Tensor, "B F"],
    offset: int,
) -> Float16[Tensor, "B F"]:
    """Add each row's product with the matrix that it chooses to a slice of `y`."""
    exact = torch.promote_types(x.dtype, torch.float32)
    products = (weight[indices.clamp(min=0)].to(exact) @ x.to(exact)[:, :, None])[..., 0]
    products = torch.where(indices[:, None] < 0, 0, products)
    added = torch.nn.functional.pad(products, (offset, y.shape[1] - offset - products.shape[1]))
    return (y.to(exact) + added).to(y.dtype)


register(
    run_bgmv_expand,
    f'#include "{VLLM}/kernels/bgmv_expand.cpp"',
    """
  std::copy_n(a.y.data(), a.y.numel(), a.out.data());
  vllm_ascend::bgmv_expand_impl(vllm_ascend::AscendType::FP16, opsmith::npu_stream(ctx), gm(a.x),
                                gm(a.weight), gm(a.indices), a.B, gm(a.out), gm(a.out), a.B,
                                (a.B + 39) / 40, a.R, a.H, a.offset, a.F);
""",
)


@run_bgmv_expand.register_cases(only=True)
def _(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    random = torch.Generator().manual_seed(seed)
    for batch, rank, hidden, adapters in ((1, 8, 64, 1), (3, 16, 4096, 2), (50, 64, 1024, 3)):
        yield {
            "x": torch.randn(batch, rank, generator=random),
            "weight": torch.randn(adapters, hidden, rank, generator=random).half(),
            "indices": torch.randint(-1, adapters, (batch,), generator=random),
            "y": torch.randn(batch, hidden + 128, generator=random).half(),
            "offset": 64,
        }


@opsmith.op("others::run_store_kv_block")
def run_store_kv_block(
    keys: Float16[Tensor, "N D"],
    cache: Float16[Tensor, "P S D"],
    lengths: Int32[Tensor, "G"],
    begins: Annotated[Int32[Tensor, "G"], Index("N")],
    slots: Int32[Tensor, "G"],
) -> Float16[Tensor, "P S D"]:
    """Copy groups of tokens into the cache, which the kernel writes in place."""
    rows = cache.reshape(-1, cache.shape[-1]).clone()
    for length, begin, slot in zip(*map(Tensor.tolist, (lengths, begins, slots)), strict=True):
        rows[slot : slot + length] = keys[begin : begin + length]
    return rows.reshape(cache.shape)


register(
    run_store_kv_block,
    f"""
static int32_t key = 2;
#define OPSMITH_TILING StoreKVBlock::StoreKVBlockTilingData
#define OPSMITH_TILING_KEY key
#define REGISTER_TILING_DEFAULT(type)
#include "{VLLM}/attention/store_kv_block/op_kernel/store_kv_block.cpp"
""",
    """
  std::copy_n(a.cache.data(), a.cache.numel(), a.out.data());
  StoreKVBlock::StoreKVBlockTilingData t{};
  const uint32_t cores = 20;
  t.blockTableSize = a.S, t.typeByte = 2, t.tokenSize = a.D;
  t.corePerNum = a.G / cores, t.coreTail = a.G % cores;
  t.numTokens = a.N, t.numCache = a.P * a.S, t.groupInfoLen = a.G;
  store_kv_block<<<cores, nullptr, opsmith::npu_stream(ctx)>>>(
      gm(a.keys), gm(a.out), gm(a.lengths), gm(a.begins), gm(a.slots), nullptr,
      reinterpret_cast<GM_ADDR>(&t));
""",
)


@run_store_kv_block.register_cases(only=True)
def _(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    """Whole blocks of the cache, and the rest of a sequence; blocks of up to 180 Ki elements."""
    random = torch.Generator().manual_seed(seed)
    for size, tokens, width in ((16, 40, 8), (8, 90, 72), (128, 200, 1024)):
        lengths = [size] * (tokens // size) + [tokens % size]
        yield {
            "keys": torch.randn(tokens, width, generator=random).half(),
            "cache": torch.zeros(len(lengths) + 1, size, width).half(),
            "lengths": torch.tensor(lengths, dtype=torch.int32),
            "begins": torch.arange(len(lengths), dtype=torch.int32) * size,
            "slots": torch.arange(1, len(lengths) + 1, dtype=torch.int32) * size,
        }


@opsmith.op("others::run_sgmv_shrink")
def run_sgmv_shrink(
    x: Float16[Tensor, "B H"],
    weight: Float16[Tensor, "L R H"],
    indices: Int64[Tensor, "S"],
    lengths: Int64[Tensor, "S"],
    scale: float,
) -> Float32[Tensor, "B R"]:
    """Multiply each row with the matrix that its sequence chooses."""
    return run_bgmv_shrink.reference(x, weight, indices.repeat_interleave(lengths), scale)


register(
    run_sgmv_shrink,
    f'#include "{VLLM}/kernels/sgmv_shrink.cpp"',
    """
  std::fill_n(a.out.data(), a.out.numel(), 0.0f);
  vllm_ascend::sgmv_shrink_impl(vllm_ascend::AscendType::FP16, opsmith::npu_stream(ctx), gm(a.x),
                                gm(a.weight), gm(a.indices), a.S, gm(a.lengths), a.S, gm(a.out),
                                a.B, (a.B + 39) / 40, a.H, a.R, a.scale);
""",
)


@opsmith.op("others::run_sgmv_expand")
def run_sgmv_expand(
    x: Float32[Tensor, "B R"],
    weight: Float16[Tensor, "L H R"],
    indices: Int64[Tensor, "S"],
    lengths: Int64[Tensor, "S"],
    y: Float16[Tensor, "B F"],
    offset: int,
) -> Float16[Tensor, "B F"]:
    """Add each row's product with the matrix that its sequence chooses to a slice of `y`."""
    return run_bgmv_expand.reference(x, weight, indices.repeat_interleave(lengths), y, offset)


register(
    run_sgmv_expand,
    f'#include "{VLLM}/kernels/sgmv_expand.cpp"',
    """
  std::copy_n(a.y.data(), a.y.numel(), a.out.data());
  vllm_ascend::sgmv_expand_impl(vllm_ascend::AscendType::FP16, opsmith::npu_stream(ctx), gm(a.x),
                                gm(a.weight), gm(a.indices), a.S, gm(a.lengths), a.S, gm(a.out),
                                gm(a.out), a.B, (a.B + 39) / 40, a.R, a.H, a.offset, a.F);
""",
)


def in_sequences(case: dict[str, Any]) -> dict[str, Any]:
    """Give a case whose rows are sequences of one, two, three … rows."""
    rows = len(case.pop("indices"))
    lengths = []
    while sum(lengths) < rows:
        lengths.append(min(len(lengths) + 1, rows - sum(lengths)))
    adapters = len(case["weight"])
    indices = torch.arange(len(lengths)) % (adapters + 1) - 1
    return case | {"indices": indices, "lengths": torch.tensor(lengths)}


@run_sgmv_shrink.register_cases(only=True)
def _(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    yield from map(in_sequences, run_bgmv_shrink.cases[0](dtype, seed))


@run_sgmv_expand.register_cases(only=True)
def _(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    yield from map(in_sequences, run_bgmv_expand.cases[0](dtype, seed))
