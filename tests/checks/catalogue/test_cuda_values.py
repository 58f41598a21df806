"""The row `cuda-on-cpu` draws values and sizes for which some kernels are wrong."""

from typing import Annotated

import pytest
import torch
from alone import row_alone
from jaxtyping import Float16, Float32, Int32, Int64
from torch import Tensor

import opsmith
from opsmith import Index, checks

KERNEL = """
#include "rows.h"
#include <opsmith/cuda.h>
namespace {
template <int kFault>
__global__ void softmax(const float* x, float* out, int rows, int columns) {
  const int row = kFault == 3 ? blockIdx.y : blockIdx.x * 64 + threadIdx.x;
  if (row >= rows || (kFault == 3 && threadIdx.x != 0)) return;
  float most = -INFINITY, sum = 0;
  for (int i = 0; i < columns; ++i) {
    const float value = x[row * columns + i];
    most = kFault == 2 || !isnan(value) ? fmaxf(most, value) : NAN;
    if (kFault != 2 && isnan(value)) break;
  }
  if (kFault == 1) most = 0;
  for (int i = 0; i < columns; ++i) sum += expf(x[row * columns + i] - most);
  for (int i = 0; i < columns; ++i) {
    out[row * columns + i] = expf(x[row * columns + i] - most) / sum;
  }
}
}  // namespace
void rows(const opsmith::Context& ctx, const cuda_values::rows_args& a) {
  const int rows = static_cast<int>(a.R), columns = static_cast<int>(a.C);
  if (rows == 0 || columns == 0) return;
  const auto stream = opsmith::cuda_stream(ctx);
#if FAULT == 3
  softmax<3><<<dim3(1, rows), 32, 0, stream>>>(a.x.data(), a.out.data(), rows, columns);
#else
  softmax<FAULT><<<(rows + 63) / 64, 64, 0, stream>>>(a.x.data(), a.out.data(), rows, columns);
#endif
}
OPSMITH_KERNEL(cuda_values, rows, cuda)
"""


def row_of(tmp_path, fault):
    @opsmith.op("cuda_values::rows")
    def rows(x: Float32[Tensor, "R C"]) -> Float32[Tensor, "R C"]:
        return x.softmax(-1) if x.numel() else torch.zeros_like(x)

    (tmp_path / "rows.cu").write_text(KERNEL)
    rows.register_kernel("cuda", source=tmp_path / "rows.cu", flags=[f"-DFAULT={fault}"])
    report = checks.run(rows, select=["cuda-on-cpu"], examples=4, isolate=False)
    return next(row for row in report.rows if row.check == "cuda-on-cpu")


@pytest.mark.slow(cases=2)
@pytest.mark.parametrize(
    ("fault", "code"),
    [(0, ""), (1, "OPS-VALUE-RANGE"), (3, "OPS-CUDA-LAUNCH")],
    ids=["right", "no maximum", "rows along y"],
)
def test_a_softmax(tmp_path, fault, code):
    row = row_of(tmp_path, fault)
    assert (row.status, row.code) == (("failed", code) if code else ("passed", "")), row.explain()


DOUBLED = """
#include "doubled.h"
#include <opsmith/cuda.h>
__global__ void doubled(const float* x, float* out, int n) {
  const int i = blockIdx.x * 64 + threadIdx.x;
  if (i < n) out[i] = x[i] * 2;
}
void doubled(const opsmith::Context& ctx, const cuda_values::doubled_args& a) {
  if (a.A == 0 || a.B == 0 || a.C == 0 || a.E == 0) return;
  const int n = static_cast<int>(a.A * a.B * a.C * a.D * a.E);
  doubled<<<(n + 63) / 64, 64, 0, opsmith::cuda_stream(ctx)>>>(a.x.data(), a.out.data(), n);
}
OPSMITH_KERNEL(cuda_values, doubled, cuda)
"""


@pytest.mark.slow
def test_a_launch_of_no_blocks_is_found_whichever_size_is_zero(tmp_path):
    @opsmith.op("cuda_values::doubled")
    def doubled(x: Float32[Tensor, "A B C D E"]) -> Float32[Tensor, "A B C D E"]:
        return x * 2

    (tmp_path / "doubled.cu").write_text(DOUBLED)
    doubled.register_kernel("cuda", source=tmp_path / "doubled.cu")
    report = checks.run(doubled, select=["cuda-on-cpu"], examples=4, isolate=False)
    row = next(row for row in report.rows if row.check == "cuda-on-cpu")
    assert (row.status, row.code) == ("failed", "OPS-CUDA-LAUNCH"), row.explain()
    assert "a grid has at least one block" in row.explain()
    assert "cudaErrorInvalidConfiguration" in row.explain()


SUMMED = """
#include "summed.h"
#include <cuda_fp16.h>
#include <opsmith/cuda.h>
template <typename Sum>
__global__ void summed(const __half* x, __half* out, int rows, int columns) {
  const int row = blockIdx.x * 64 + threadIdx.x;
  if (row >= rows) return;
  Sum sum = Sum(0.0f);
  for (int i = 0; i < columns; ++i) sum = Sum(float(sum) + __half2float(x[row * columns + i]));
  out[row] = __half(sum);
}
void summed(const opsmith::Context& ctx, const cuda_values::summed_args& a) {
  if (a.R == 0) return;
  const int rows = static_cast<int>(a.R), columns = static_cast<int>(a.C);
  summed<SUM><<<(rows + 63) / 64, 64, 0, opsmith::cuda_stream(ctx)>>>(
      reinterpret_cast<const __half*>(a.x.data()), reinterpret_cast<__half*>(a.out.data()), rows,
      columns);
}
OPSMITH_KERNEL(cuda_values, summed, cuda)
"""


@pytest.mark.slow
@pytest.mark.parametrize("kept_in", ["__half", "float"])
def test_a_long_sum_that_is_kept_in_half_precision_is_found(tmp_path, kept_in):
    @opsmith.op("cuda_values::summed")
    def summed(x: Float16[Tensor, "R C"]) -> Float16[Tensor, "R"]:
        return x.float().sum(1).to(x.dtype)

    (tmp_path / "summed.cu").write_text(SUMMED)
    summed.register_kernel("cuda", source=tmp_path / "summed.cu", flags=[f"-DSUM={kept_in}"])
    report = checks.run(summed, select=["cuda-on-cpu"], examples=4, isolate=False)
    (row,) = (row for row in report.rows if row.check == "cuda-on-cpu")
    expected = ("failed", "OPS-VALUE-ACCUMULATION") if kept_in == "__half" else ("passed", "")
    assert (row.status, row.code) == expected, row.explain()


VECTORS = """
#include "vectors.h"
#include <opsmith/cuda.h>
__global__ void take(const float* x, float* out, int n, bool aligned) {
  const int i = blockIdx.x * 64 + threadIdx.x, many = aligned ? n / 4 : 0;
  if (i < many) reinterpret_cast<float4*>(out)[i] = reinterpret_cast<const float4*>(x)[i];
  if (!TAIL && aligned) return;
  for (int rest = 4 * many + i; rest < n; rest += gridDim.x * 64) out[rest] = x[rest];
}
void vectors(const opsmith::Context& ctx, const cuda_values::vectors_args& a) {
  const int n = static_cast<int>(a.N);
  if (n == 0) return;
  const auto from = reinterpret_cast<uintptr_t>(a.x.data());
  const bool aligned = (from | reinterpret_cast<uintptr_t>(a.out.data())) % 16 == 0;
  opsmith::launch(ctx, take, (n + 63) / 64, 64, 0, a.x.data(), a.out.data(), n, aligned);
}
OPSMITH_KERNEL(cuda_values, vectors, cuda)
"""


@pytest.mark.slow(cases=2)
@pytest.mark.parametrize("tail", [True, False])
def test_a_tail_that_is_left_out_where_tensors_are_aligned(tmp_path, tail):
    @opsmith.op("cuda_values::vectors")
    def vectors(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
        return x.clone()

    (tmp_path / "vectors.cu").write_text(VECTORS)
    flags = [f"-DTAIL={int(tail)}"]
    vectors.register_kernel("cuda", source=tmp_path / "vectors.cu", flags=flags)
    row = row_alone(vectors, "cuda-on-cpu", examples=4)
    assert row.status == ("passed" if tail else "failed"), row.explain()
    assert tail or "the result[0] was never written" in row.explain()


#: Adds up rows by the last block, which a counter of blocks tells.
COUNTS = """
#include "counted.h"
#include <opsmith/cuda.h>
__device__ unsigned int arrived;
__global__ void add(const int* x, int n, int* parts, int* out) {
  const int i = blockIdx.x * 64 + threadIdx.x;
  if (i < n) atomicAdd(&parts[blockIdx.x], x[i]);
  __threadfence();
  __syncthreads();
  if (threadIdx.x != 0) return;
  if (LAST) {
    __threadfence();
    int total = 0;
    for (int b = 0; b < gridDim.x; ++b) total += atomicAdd(&parts[b], 0);
    *out = total;
    RESET
  }
}
void counted(const opsmith::Context& ctx, const counts::counted_args& a) {
  const auto stream = opsmith::cuda_stream(ctx);
  const int n = static_cast<int>(a.N), blocks = (n + 63) / 64;
  auto parts = ctx.scratch<int>(blocks);
  cudaMemsetAsync(parts.data(), 0, blocks * sizeof(int), stream);
  add<<<blocks, 64, 0, stream>>>(a.x.data(), n, parts.data(), a.out.data());
}
OPSMITH_KERNEL(counts, counted, cuda)
"""


@pytest.mark.slow(cases=3)
@pytest.mark.parametrize(
    ("last", "reset", "told"),
    [
        ("atomicInc(&arrived, gridDim.x - 1) == gridDim.x - 1", "", ""),
        ("(atomicAdd(&arrived, 1) + 1) % gridDim.x == 0", "", "with other arguments in the same"),
        ("atomicAdd(&arrived, 1) + 1 == gridDim.x", "", "is right in a fresh process"),
        ("atomicAdd(&arrived, 1) + 1 == gridDim.x", "arrived = 0;", ""),
    ],
)
def test_what_a_call_leaves_for_calls_of_other_sizes(tmp_path, last, reset, told):
    @opsmith.op("counts::counted", where=("N >= 1",))
    def counted(x: Int32[Tensor, "N"]) -> Int32[Tensor, ""]:
        return x.sum().int()

    (tmp_path / "counted.cu").write_text(COUNTS.replace("LAST", last).replace("RESET", reset))
    counted.register_kernel("cuda", source=tmp_path / "counted.cu")
    row = row_alone(counted, "cuda-on-cpu")
    assert row.code == ("OPS-STATE-EARLIER" if told else ""), row.explain()
    assert told in row.message


#: Joins two trees of least roots; what another thread has joined meanwhile has to be joined again.
UNITE = """
#include "joined.h"
#include <opsmith/cuda.h>
__device__ int root_of(volatile int* parent, int i) {
  while (parent[i] != i) i = parent[i];
  return i;
}
__global__ void start(int* parent, int n) {
  const int i = blockIdx.x * 64 + threadIdx.x;
  if (i < n) parent[i] = i;
}
__global__ void unite(const int64_t* edges, int* parent, int n) {
  const int i = blockIdx.x * 64 + threadIdx.x;
  if (i >= n) return;
  int a = root_of(parent, edges[2 * i]), b = root_of(parent, edges[2 * i + 1]);
  while (a != b) {
    if (a > b) { const int other = a; a = b; b = other; }
    const int old = atomicMin(&parent[b], a);
    AGAIN
    b = old;
  }
}
__global__ void read(int* parent, int* out, int n) {
  const int i = blockIdx.x * 64 + threadIdx.x;
  if (i < n) out[i] = root_of(parent, i);
}
void joined(const opsmith::Context& ctx, const joins::joined_args& a) {
  const auto stream = opsmith::cuda_stream(ctx);
  const int n = static_cast<int>(a.N), edges = static_cast<int>(a.E);
  int* parent = ctx.scratch<int>(n).data();
  start<<<(n + 63) / 64, 64, 0, stream>>>(parent, n);
  unite<<<(edges + 63) / 64, 64, 0, stream>>>(a.edges.data(), parent, edges);
  read<<<(n + 63) / 64, 64, 0, stream>>>(parent, a.out.data(), n);
}
OPSMITH_KERNEL(joins, joined, cuda)
"""


@pytest.mark.slow(cases=2)
@pytest.mark.parametrize("again", ["if (old == b) break;", "break;"])
def test_others_run_between_two_atomic_operations_of_a_thread(tmp_path, again):
    @opsmith.op("joins::joined", where=("N >= 1", "E >= 1"))
    def joined(
        edges: Annotated[Int64[Tensor, "E 2"], Index("N")], labels: Int32[Tensor, "N"]
    ) -> Int32[Tensor, "N"]:
        label, before = torch.arange(len(labels)), None
        while before is None or not torch.equal(label, before):
            before = label.clone()
            least = label[edges].amin(1)
            label.scatter_reduce_(0, edges[:, 0], least, "amin")
            label.scatter_reduce_(0, edges[:, 1], least, "amin")
        return label.int()

    @joined.register_cases(only=True)
    def _(dtype, seed):
        for number in range(4):
            chance = torch.Generator().manual_seed(number)
            edges = torch.randint(0, 40, (60, 2), generator=chance)
            yield {"edges": edges, "labels": torch.zeros(40, dtype=torch.int32)}

    (tmp_path / "joined.cu").write_text(UNITE.replace("AGAIN", again))
    joined.register_kernel("cuda", source=tmp_path / "joined.cu")
    row = row_alone(joined, "cuda-on-cpu")
    assert row.status == ("failed" if again == "break;" else "passed"), row.explain()
    if again == "break;":
        assert row.code == "OPS-VALUE-WRONG" and "in order " in row.message
