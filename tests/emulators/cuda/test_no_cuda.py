"""Code that a C++ compiler takes and nvcc does not is refused line by line."""

import re
import subprocess
from pathlib import Path

import pytest

import emulators.cuda
from opsmith.kernels.toolchain import compilers

INCLUDE = Path(emulators.cuda.__file__).parent / "include"
#: Statements of a kernel with what they need, and whether CUDA has them.
STATEMENTS = {
    "atomicMax(real, 1.0f);": False,
    "atomicMin(wide, 1.0);": False,
    "atomicAdd(signed64, 1LL);": False,
    "atomicAdd(size, 1ul);": False,
    "atomicSub(real, 1.0f);": False,
    "atomicExch(wide, 1.0);": False,
    "atomicAnd(signed64, 1LL);": False,
    "atomicInc(count, 1);": False,
    "atomicCAS(real, 1.0f, 2.0f);": False,
    "atomicAdd_block(signed64, 1LL);": False,
    "__shfl_sync(~0u, pair, 0);": False,
    "__shfl_down_sync(~0u, quad, 1);": False,
    "atomicMax(signed64, 1LL);": True,
    "atomicAdd(real, 1);": True,
    "atomicAdd(wide, 1.0f);": True,
    "atomicAdd(&pair, pair);": True,
    "atomicAdd(reinterpret_cast<unsigned long long*>(size), 1ull);": True,
    "atomicCAS(half_bits, 1, 2);": True,
    "atomicAdd(halves, __float2half(1.0f));": True,
    "__shfl_xor_sync(~0u, halves[0], 1);": True,
    "__shfl_sync(~0u, *size, 0);": True,
    "cooperative_groups::tiled_partition<32>(block).shfl(pair, 0);": True,
    "atomicMax(mine, 1.0f);": True,
}
BEFORE = """\
#include <emulated/cuda.h>
#include <cooperative_groups.h>
#include <cuda_fp16.h>
struct Mine {};
__device__ float atomicMax(Mine* address, float value);
__global__ void kernel(float* real, double* wide, long long* signed64, unsigned long* size,
                       int* count, unsigned short* half_bits, __half* halves, float2 pair,
                       Mine* mine) {
  const auto block = cooperative_groups::this_thread_block();
  const float4 quad{};
"""


@pytest.mark.slow
def test_what_nvcc_refuses_is_refused_and_what_it_takes_is_not(tmp_path):
    source = tmp_path / "kernel.cpp"
    source.write_text(BEFORE + "\n".join(STATEMENTS) + "\n}\n")
    command = [compilers.find_compiler("a test").path, "-std=c++20", f"-I{INCLUDE}"]
    done = subprocess.run(
        [*command, "-fsyntax-only", "-fmax-errors=0", str(source)], capture_output=True, text=True
    )
    first = BEFORE.count("\n") + 1
    named = {int(line) for line in re.findall(r"kernel\.cpp:(\d+):\d+:", done.stderr)}
    refused = {one for n, one in enumerate(STATEMENTS, first) if n in named}
    assert refused == {one for one, right in STATEMENTS.items() if not right}, done.stderr
    assert "CUDA has no atomicMax for a pointer to this type" in done.stderr
    assert "CUDA's shuffles take numbers" in done.stderr
