"""Which addresses `cuda-on-cpu` takes, and what it says of others."""

from typing import Annotated

import pytest
import torch
from jaxtyping import Float16, Float32, Int64
from torch import Tensor

import opsmith
from opsmith import Index, checks
from opsmith.kernels import Library
from opsmith.kernels.languages.emulated_cuda import emulated

#: Half numbers are added by atomicCAS of the word around them, as PyTorch did.
KERNEL = """
#include "added.h"
#include <cuda_fp16.h>
#include <opsmith/cuda.h>
__device__ void add(__half* to, __half value) {
  const bool high = (reinterpret_cast<size_t>(to) & 2) != 0;
  auto* word = reinterpret_cast<unsigned*>(reinterpret_cast<char*>(to) - (high ? 2 : 0));
  unsigned old = *word, assumed;  // READ
  do {
    assumed = old;
    const auto bits = static_cast<unsigned short>(high ? old >> 16 : old & 0xffff);
    const unsigned sum = __half_as_ushort(__hadd(__ushort_as_half(bits), value));
    const unsigned next = high ? (old & 0xffff) | sum << 16 : (old & 0xffff0000) | sum;
    old = EXCHANGE;
  } while (assumed != old);
}
__global__ void added(__half* out, const __half* x, const int64_t* at, int n) {
  const int i = blockIdx.x * 64 + threadIdx.x;
  if (i < n) add(out + at[i], x[i]);
}
void added(const opsmith::Context& ctx, const shared_words::added_args& a) {
  if (a.N == 0) return;
  const int n = static_cast<int>(a.N);
  added<<<(n + 63) / 64, 64, 0, opsmith::cuda_stream(ctx)>>>(
      reinterpret_cast<__half*>(a.out.data()), reinterpret_cast<const __half*>(a.x.data()),
      a.at.data(), n);
}
OPSMITH_KERNEL(shared_words, added, cuda)
"""
#: The last lane asks one that has returned where it is to read.
ASKING = """
#include "chained.h"
#include <opsmith/cuda.h>
__global__ void follow(const float* x, float* out, int count) {
  const int lane = threadIdx.x;
  if (lane >= count) return;
  const int next = __shfl_sync(0xffffffff, lane, lane + 1);
  out[lane] = x[next];
}
void chained(const opsmith::Context& ctx, const remarks::chained_args& a) {
  const int count = static_cast<int>(a.N);
  if (count < 32) {
    follow<<<1, 32, 0, opsmith::cuda_stream(ctx)>>>(a.x.data(), a.out.data(), count);
  }
}
OPSMITH_KERNEL(remarks, chained, cuda)
"""
ATOMIC = "atomicCAS(word, assumed, next)"


@pytest.mark.slow(cases=2)
@pytest.mark.parametrize(
    ("exchange", "code"),
    [(ATOMIC, ""), ("assumed, *word = next", "OPS-MEMORY-BOUNDS")],
    ids=["atomic", "plain"],
)
def test_halves_are_added_by_the_word(tmp_path, exchange, code):
    @opsmith.op("shared_words::added", mutates_args=("out",))
    def added(
        out: Float16[Tensor, "S"],
        x: Float16[Tensor, "N"],
        at: Annotated[Int64[Tensor, "N"], Index("S")],
    ) -> None:
        out.index_add_(0, at, x)

    @added.register_cases(only=True)
    def _(dtype, seed):
        for size, count in ((1, 1), (5, 9), (8, 40), (33, 90)):
            yield {
                "out": torch.randint(-4, 5, (size,)).half(),
                "x": torch.randint(-3, 4, (count,)).half(),
                "at": torch.randint(0, size, (count,)),
            }

    (tmp_path / "added.cu").write_text(KERNEL.replace("EXCHANGE", exchange))
    added.register_kernel("cuda", source=tmp_path / "added.cu")
    report = checks.run(added, select=["cuda-on-cpu"], isolate=False)
    row = next(row for row in report.rows if row.check == "cuda-on-cpu")
    assert (row.status, row.code) == ("failed" if code else "passed", code), row.explain()
    if code:
        line = 1 + KERNEL[: KERNEL.index("// READ")].count("\n")
        assert f"added.cu:{line}" in row.explain()


@pytest.mark.slow
def test_an_address_that_no_lane_brought_is_told_with_the_shuffle(tmp_path):
    @opsmith.op("remarks::chained", where="N >= 1")
    def chained(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
        return x.roll(-1)

    (tmp_path / "chained.cu").write_text(ASKING)
    chained.register_kernel("cuda", source=tmp_path / "chained.cu")
    report = checks.run(chained, select=["cuda-on-cpu"], examples=4, isolate=False)
    row = next(row for row in report.rows if row.check == "cuda-on-cpu")
    assert row.code.startswith("OPS-MEMORY"), row.explain()
    first, second = row.explain().split("after this, which may be the cause: ")
    assert "of argument 'x'" in first and "chained.cu:8" in first
    assert "__shfl_sync took the value of lane" in second and "chained.cu:7" in second


#: Vectors of four elements from the beginning on, then the rest.
FOUR = """
#include "doubled.h"
#include <opsmith/cuda.h>
__global__ void twice(float* x, int64_t n, int64_t step) {
  const int64_t i = 4 * threadIdx.x;
  if (step == 1 && i + 4 <= n) {
    float4& four = *reinterpret_cast<float4*>(x + i);
    four = {2 * four.x, 2 * four.y, 2 * four.z, 2 * four.w};
  } else {
    for (int64_t k = i; k < n && k < i + 4; ++k) x[k * step] *= 2;
  }
}
void doubled(const opsmith::Context& ctx, const NAME::doubled_args& a) {
  if (a.N == 0) return;
  twice<<<1, (a.N + 3) / 4, 0, opsmith::cuda_stream(ctx)>>>(a.x.data(), a.N, a.x.stride(0));
}
OPSMITH_KERNEL(NAME, doubled, cuda)
"""


def with_vectors(folder, name: str, strided: bool, kernel: str = FOUR):
    @opsmith.op(f"{name}::doubled", mutates_args=("x",), where="N <= 2048")
    def doubled(x: Float32[Tensor, "N"]) -> None:
        x.mul_(2)

    (folder / "doubled.cu").write_text(kernel.replace("NAME", name))
    doubled.register_kernel("cuda", source=folder / "doubled.cu", strided=strided)
    return doubled


@pytest.mark.slow(cases=2)
@pytest.mark.parametrize("strided", [False, True])
def test_only_a_kernel_that_takes_strides_is_given_any_address(tmp_path, strided):
    operator = with_vectors(tmp_path, f"vectors_{strided}".lower(), strided)
    report = checks.run(operator, select=["cuda-on-cpu"], examples=4, isolate=False)
    row = next(row for row in report.rows if row.check == "cuda-on-cpu")
    expected = ("failed", "OPS-CUDA-ALIGNMENT") if strided else ("passed", "")
    assert (row.status, row.code) == expected, row.explain()


@pytest.mark.slow
def test_a_view_at_another_element_is_copied_for_the_kernel_and_back(tmp_path):
    begin = 'if (reinterpret_cast<size_t>(a.x.data()) % 16 != 0) ctx.fail("begins elsewhere");'
    kernel = FOUR.replace("if (a.N == 0) return;", begin)
    operator = with_vectors(tmp_path, "vectors_of_views", strided=False, kernel=kernel)
    source = emulated(operator.kernels["cuda"].source, watched=False)
    path = source.language.library(source).build()
    Library(source.signature, source.device, source.what, path).register()
    whole = torch.arange(64.0)
    assert whole[1:].data_ptr() % 16
    operator(whole[1:42])
    torch.testing.assert_close(
        whole, torch.arange(64.0) * torch.tensor([1.0] + [2.0] * 41 + [1.0] * 22)
    )


#: Allocates room once, and again where a call needs more.
KEEPING = """
#include "kept.h"
#include <opsmith/cuda.h>
__global__ void twice(const float* x, float* out, int64_t n) {
  const int64_t i = blockIdx.x * 64 + threadIdx.x;
  if (i < n) out[i] = 2 * x[i];
}
void kept(const opsmith::Context& ctx, const keeping::kept_args& a) {
  if (a.N == 0) return;
  const auto stream = opsmith::cuda_stream(ctx);
  static float* room = nullptr;
  static int64_t count = 0;
  if (count < a.N) {
    if (room != nullptr) cudaFree(room);
    cudaMalloc(&room, a.N * sizeof(float));
    count = a.N;
  }
  twice<<<(a.N + 63) / 64, 64, 0, stream>>>(a.x.data(), room, a.N);
  cudaMemcpyAsync(a.out.data(), room, a.N * sizeof(float), cudaMemcpyDeviceToDevice, stream);
  END
}
OPSMITH_KERNEL(keeping, kept, cuda)
"""


@pytest.mark.slow(cases=2)
@pytest.mark.parametrize("end", ["", "cudaFree(room); cudaFree(room); count = 0;"])
def test_what_the_host_allocates_is_kept_for_later_calls_and_freed_once(tmp_path, end):
    @opsmith.op("keeping::kept")
    def kept(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
        return 2 * x

    (tmp_path / "kept.cu").write_text(KEEPING.replace("END", end))
    kept.register_kernel("cuda", source=tmp_path / "kept.cu")
    report = checks.run(kept, select=["cuda-on-cpu"], examples=6, isolate=False)
    row = next(row for row in report.rows if row.check == "cuda-on-cpu")
    assert (row.status, row.code) == (("failed", "OPS-CUDA-HOST") if end else ("passed", "")), row
    assert not end or "cudaFree takes element 0 of memory that was freed" in row.message


#: A fixed number of blocks, so that they grow with the tensor.
GROWING = """
#include "grown.h"
#include <opsmith/cuda.h>
__global__ void twice(const float* x, float* out, int64_t n) {
  const int64_t i = blockIdx.x * int64_t{blockDim.x} + threadIdx.x;
  if (i < n) out[i] = 2 * x[i];
}
void grown(const opsmith::Context& ctx, const growing::grown_args& a) {
  if (a.N == 0) return;
  twice<<<256, (a.N + 255) / 256, 0, opsmith::cuda_stream(ctx)>>>(a.x.data(), a.out.data(), a.N);
}
OPSMITH_KERNEL(growing, grown, cuda)
"""


@pytest.mark.slow
def test_blocks_that_grow_with_the_tensor_are_launched_too_large(tmp_path):
    @opsmith.op("growing::grown")
    def grown(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
        return 2 * x

    (tmp_path / "grown.cu").write_text(GROWING)
    grown.register_kernel("cuda", source=tmp_path / "grown.cu")
    report = checks.run(grown, select=["cuda-on-cpu"], examples=3, isolate=False)
    row = next(row for row in report.rows if row.check == "cuda-on-cpu")
    assert row.code == "OPS-CUDA-LAUNCH" and "this one has 1025" in row.message, row.explain()
