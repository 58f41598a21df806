"""Tensor cores in the emulation of CUDA: every shape, type and layout of nvcuda::wmma."""

import pytest
import torch
from jaxtyping import Float32
from torch import Tensor

from opsmith.checks import harness
from opsmith.checks.harness import Phase
from opsmith.kernels import kernel_source
from opsmith.kernels.languages.emulated_cuda import emulated
from opsmith.signature import signature_of


def product(
    x: Float32[Tensor, "M K"], y: Float32[Tensor, "K N"], kind: str
) -> Float32[Tensor, "M N"]:
    return x @ y


SIGNATURE = signature_of(product, "tensor_cores::product")
KERNEL = """\
#include "product.h"

#include <mma.h>
#include <opsmith/cuda.h>

using namespace nvcuda;

template <int m, int n, int k, typename T, typename Sum, typename A, typename B>
__global__ void multiply(const float* x, const float* y, float* out) {
  using Left = wmma::fragment<wmma::matrix_a, m, n, k, T, A>;
  using Right = wmma::fragment<wmma::matrix_b, m, n, k, T, B>;
  using Number = typename Left::storage_element_type;
  constexpr bool rows_a = std::is_same_v<A, wmma::row_major>;
  constexpr bool rows_b = std::is_same_v<B, wmma::row_major>;
  __shared__ __align__(32) Number left[32 * 32], right[32 * 32];
  __shared__ __align__(32) Sum sums[m * n];
  for (int i = threadIdx.x; i < m * k; i += 32) {
    left[rows_a ? i / k * 32 + i % k : i % k * 32 + i / k] = static_cast<Number>(x[i]);
  }
  for (int i = threadIdx.x; i < k * n; i += 32) {
    right[rows_b ? i / n * 32 + i % n : i % n * 32 + i / n] = static_cast<Number>(y[i]);
  }
  for (int i = threadIdx.x; i < m * n; i += 32) sums[i] = static_cast<Sum>(1.0f);
  __syncwarp();
  Left a;
  Right b;
  wmma::fragment<wmma::accumulator, m, n, k, Sum> sum;
  wmma::load_matrix_sync(a, left, 32);
  wmma::load_matrix_sync(b, right, 32);
  wmma::load_matrix_sync(sum, sums, m, wmma::mem_col_major);
  wmma::mma_sync(sum, a, b, sum);
  wmma::store_matrix_sync(sums, sum, n, wmma::mem_row_major);
  __syncwarp();
  for (int i = threadIdx.x; i < m * n; i += 32) out[i] = static_cast<float>(sums[i]);
}

#define KIND(name, T, Sum, m, n, k)                                                       \\
  if (a.kind == name && a.M == m && a.N == n) {                                           \\
    multiply<m, n, k, T, Sum, wmma::row_major, wmma::col_major>                           \\
        <<<1, 32, 0, stream>>>(a.x.data(), a.y.data(), a.out.data());                     \\
  }                                                                                       \\
  if (a.kind == name " turned" && a.M == m && a.N == n) {                                 \\
    multiply<m, n, k, T, Sum, wmma::col_major, wmma::row_major>                           \\
        <<<1, 32, 0, stream>>>(a.x.data(), a.y.data(), a.out.data());                     \\
  }
#define SHAPES(name, T, Sum) \\
  KIND(name, T, Sum, 16, 16, 16) KIND(name, T, Sum, 32, 8, 16) KIND(name, T, Sum, 8, 32, 16)

void product(const opsmith::Context& ctx, const tensor_cores::product_args& a) {
  const auto stream = opsmith::cuda_stream(ctx);
  SHAPES("half", __half, float)
  SHAPES("half to half", __half, __half)
  SHAPES("bfloat16", __nv_bfloat16, float)
  SHAPES("int8", signed char, int)
  KIND("tf32", wmma::precision::tf32, float, 16, 16, 8)
  KIND("double", double, double, 8, 8, 4)
}
OPSMITH_KERNEL(tensor_cores, product, cuda)
"""
USUAL = [(16, 16, 16), (32, 8, 16), (8, 32, 16)]
KINDS = [
    *((kind, shape) for kind in ("half", "half to half", "bfloat16", "int8") for shape in USUAL),
    ("tf32", (16, 16, 8)),
    ("double", (8, 8, 4)),
]


@pytest.fixture(scope="module")
def build(tmp_path_factory):
    source = tmp_path_factory.mktemp("wmma") / "product.cu"
    source.write_text(KERNEL)
    return harness.build(
        emulated(kernel_source(SIGNATURE, "cuda", source), watched=True), emulated=True
    )


@pytest.mark.slow
def test_products_of_small_integers_are_exact_in_every_shape_type_and_layout(build):
    generator = torch.Generator().manual_seed(0)
    cases = [
        {
            "x": torch.randint(-3, 4, (m, k), generator=generator).float(),
            "y": torch.randint(-3, 4, (k, n), generator=generator).float(),
            "kind": kind + turned,
        }
        for kind, (m, n, k) in KINDS
        for turned in ("", " turned")
    ]
    phase = Phase(seed=1, fill=0xFF, emulated=True)
    (calls,) = harness.run(build, SIGNATURE, cases, [phase])
    for case, call in zip(cases, calls, strict=True):
        right = case["x"] @ case["y"] + 1
        assert torch.equal(call.results[0], right), (case["kind"], right.shape)
