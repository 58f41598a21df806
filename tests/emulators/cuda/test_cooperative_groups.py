"""Cooperative groups in the emulation of CUDA: blocks, tiles of warps, and what they forget."""

import re
from pathlib import Path

import pytest
import torch
from jaxtyping import Float32, Int32
from torch import Tensor

from opsmith.checks import harness
from opsmith.checks.harness import Phase
from opsmith.kernels import kernel_source
from opsmith.kernels.languages.emulated_cuda import emulated
from opsmith.signature import signature_of


def sums(
    x: Float32[Tensor, "N"], threads: int
) -> tuple[Float32[Tensor, "3"], Int32[Tensor, "{threads} 4"]]:
    return x, x


SIGNATURE = signature_of(sums, "cooperative::sums")
KERNEL = """\
#include "sums.h"

#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>
#include <opsmith/cuda.h>

namespace cg = cooperative_groups;

// As in introductions to cooperative groups: a group of any kind adds in memory of its own.
__device__ float reduce_sum(cg::thread_group g, float* temp, float value) {
  const int rank = g.thread_rank();
  for (int i = g.size() / 2; i > 0; i /= 2) {
    temp[rank] = value;
    g.sync();
    if (rank < i) value += temp[rank + i];
    g.sync();
  }
  return value;
}

template <int Size>
__device__ float reduce_tile(cg::thread_block_tile<Size> g, float value) {
  for (int i = g.size() / 2; i > 0; i /= 2) value += g.shfl_down(value, i);
  return value;
}

__global__ void add_all(const float* x, int n, float* out, int* seen) {
  extern __shared__ float temp[];
  cg::thread_block block = cg::this_thread_block();
  const int rank = block.thread_rank();
  if (rank < 3) out[rank] = 0;
  cg::sync(block);

  float mine = 0;
  for (int i = rank; i < n; i += block.size()) mine += x[i];
  auto warp = cg::tiled_partition<32>(block);
  cg::thread_block_tile<8> tile = cg::tiled_partition<8>(warp);

  const auto pairs = cg::tiled_partition(block, 2);
  const float two = reduce_sum(pairs, temp + rank / 2 * 2, mine);
  if (pairs.thread_rank() == 0) atomicAdd(&out[0], two);
  BARRIER
  const float eight = reduce_tile<8>(tile, mine);
  if (tile.thread_rank() == 0) temp[rank / 8] = eight;
  block.sync();
  if (rank == 0) {
    for (int i = 0; i < int(block.size()) / 8; ++i) out[1] += temp[i];
  }
  const float all = cg::reduce(warp, mine, cg::plus<float>());
  if (warp.thread_rank() == 0) atomicAdd(&out[2], all);

  seen[4 * rank] = tile.meta_group_rank() * 100 + tile.meta_group_size();
  seen[4 * rank + 1] = warp.meta_group_rank() * 100 + warp.meta_group_size();
  seen[4 * rank + 2] = tile.ballot(rank % 2 == 0);
  seen[4 * rank + 3] = tile.shfl(rank, 1) + 100 * tile.any(rank == 9) + 200 * tile.all(rank < 8);
}

void sums(const opsmith::Context& ctx, const cooperative::sums_args& a) {
  opsmith::launch(ctx, add_all, 1, a.threads, a.threads * sizeof(float), a.x.data(),
                  static_cast<int>(a.N), a.out0.data(), a.out1.data());
}
OPSMITH_KERNEL(cooperative, sums, cuda)
"""
PHASES = [Phase(seed=seed, fill=0xFF, emulated=True) for seed in (1, 2, 3)]


def build(folder: Path, barrier: str, warp: int = 32, tile: int = 32) -> harness.Build:
    source = folder / "sums.cu"
    text = KERNEL.replace("BARRIER", barrier)
    source.write_text(text.replace("tiled_partition<32>", f"tiled_partition<{tile}>"))
    return harness.build(
        emulated(kernel_source(SIGNATURE, "cuda", source), watched=True, warp=warp), emulated=True
    )


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    return build(tmp_path_factory.mktemp("groups"), "block.sync();")


@pytest.mark.slow(cases=2)
@pytest.mark.parametrize("threads", [64, 40, 8])
def test_groups_of_a_block_and_tiles_of_a_warp_add(built, threads):
    check(built, threads)


@pytest.mark.long
def test_tiles_of_32_threads_are_halves_of_a_warp_of_64(tmp_path):
    built = build(tmp_path, "block.sync();", warp=64)
    for threads in (64, 40, 8, 96):
        check(built, threads)


@pytest.mark.long
def test_a_tile_of_64_threads_is_a_warp_of_64(tmp_path):
    built = build(tmp_path, "block.sync();", warp=64, tile=64)
    for threads in (64, 128):
        check(built, threads, tile=64)


@pytest.mark.long
def test_a_barrier_of_a_tile_is_none_for_the_rest_of_a_warp_of_64(tmp_path):
    case = {"x": torch.rand(100), "threads": 64}
    with pytest.raises(harness.Fault) as caught:
        harness.run(build(tmp_path, "warp.sync();", warp=64), SIGNATURE, [case], PHASES)
    assert re.search(r"a race: thread .* of shared memory 'temp'", str(caught.value))


def check(built: harness.Build, threads: int, tile: int = 32) -> None:
    """Compare what the groups of a block of so many threads add and see."""
    x = torch.rand(100)
    case = {"x": x, "threads": threads}
    for (one,) in harness.run(built, SIGNATURE, [case], PHASES):
        assert not one.refused, one.refused
        torch.testing.assert_close(one.results[0], x.sum().expand(3))
        rank = torch.arange(threads)
        eight, first = rank // 8, rank // 8 * 8
        expected = torch.stack(
            [
                eight % (tile // 8) * 100 + tile // 8,
                rank // tile * 100 + (threads + tile - 1) // tile,
                torch.full_like(rank, 0b01010101),
                first + 1 + 100 * (eight == 1) + 200 * (eight == 0),
            ],
            1,
        )
        assert one.results[1].tolist() == expected.tolist()


@pytest.mark.slow
def test_a_barrier_that_a_group_forgets_is_a_race(tmp_path):
    case = {"x": torch.rand(100), "threads": 64}
    with pytest.raises(harness.Fault) as caught:
        harness.run(build(tmp_path, "tile.sync();"), SIGNATURE, [case], PHASES)
    assert re.search(r"a race: thread .* of shared memory 'temp'", str(caught.value))
