"""Kernels whose results depend on the batch in their last bits, each beside a right twin."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import torch
from jaxtyping import Float32
from torch import Tensor

import opsmith

PLANTED: list[Planted] = []


@dataclass(frozen=True)
class Planted:
    """A kernel that breaks the promise, and one that keeps it."""

    name: str
    wrong: opsmith.Operator
    right: opsmith.Operator


def norm(x: Float32[Tensor, "N C"]) -> Float32[Tensor, "N C"]:
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6)


def total(x: Float32[Tensor, "N C"]) -> Float32[Tensor, "N"]:
    return x.sum(-1)


def softmax(x: Float32[Tensor, "N C"]) -> Float32[Tensor, "N C"]:
    return x.softmax(-1)


def product(x: Float32[Tensor, "N K"], w: Float32[Tensor, "M K"]) -> Float32[Tensor, "N M"]:
    return (x[:, None, :] * w).sum(-1)


def distances(x: Float32[Tensor, "N K"], y: Float32[Tensor, "M K"]) -> Float32[Tensor, "N M"]:
    return ((x[:, None, :] - y) ** 2).sum(-1).sqrt()


def columns(x: Float32[Tensor, "K N"]) -> Float32[Tensor, "N"]:
    return x.sum(0)


Kernel = Callable[..., Tensor] | Path


def pair(name: str, reference: Callable[..., Tensor], wrong: Kernel, right: Kernel) -> None:
    """Plant a kernel that depends on the batch beside one that does not."""
    twins = []
    for kind, kernel in (("wrong", wrong), ("right", right)):
        called = f"batches::{name.replace(' ', '_')}__{kind}"
        operator = opsmith.op(called, parallel_dims=("N",), batch_invariant=("N",))(reference)
        if callable(kernel):
            operator.register_kernel("cpu", kernel)
        else:
            operator.register_kernel("cpu", source=kernel)
        twins.append(operator)
    PLANTED.append(Planted(name, *twins))


def in_lanes(x: Tensor, lanes: int = 1) -> Tensor:
    """Add up each row, in so many sums that are added at the end."""
    sums = [x.new_zeros(x.shape[0]) for _ in range(lanes)]
    for c in range(x.shape[1]):
        sums[c % lanes] = sums[c % lanes] + x[:, c]
    out = sums[0]
    for one in sums[1:]:
        out = out + one
    return out


def scaled(x: Tensor, lanes: int) -> Tensor:
    return x * torch.rsqrt(in_lanes(x * x, lanes) / max(x.shape[1], 1) + 1e-6)[:, None]


def plain_norm(x: Tensor) -> Tensor:
    return scaled(x, 1)


for name, lanes in {
    "a sum in parts for few rows": lambda n: 4 if n < 4 else 1,
    "a sum in parts above a threshold": lambda n: 4 if n > 100 else 1,
    "another path for whole blocks of rows": lambda n: 1 if n % 8 else 8,
    "one row alone": lambda n: 2 if n == 1 else 1,
}.items():
    pair(name, norm, lambda x, lanes=lanes: scaled(x, lanes(x.shape[0])), plain_norm)


def lanes_of_threads(x: Tensor) -> Tensor:
    return scaled(x, torch.get_num_threads())


def odd_rows(x: Tensor) -> Tensor:
    out = scaled(x, 1)
    out[1::2] = scaled(x[1::2], 2)
    return out


def tail(x: Tensor) -> Tensor:
    whole = x.shape[0] // 4 * 4
    return torch.cat([scaled(x[:whole], 4), scaled(x[whole:], 1)])


def noticed(x: Tensor) -> Tensor:
    return scaled(x, 2 if x.isnan().any() else 1)


pair("a sum for each thread", norm, lanes_of_threads, plain_norm)
pair("odd rows by another path", norm, odd_rows, plain_norm)
pair("the tail of a batch", norm, tail, plain_norm)
pair("a path for batches with NaN", norm, noticed, plain_norm)


def running(x: Tensor) -> Tensor:
    sums = torch.nn.functional.pad(x.flatten().cumsum(0), (1, 0))
    ends = torch.arange(x.shape[0] + 1) * x.shape[1]
    return sums[ends].diff()


def without_others(x: Tensor) -> Tensor:
    sums = in_lanes(x)
    everything = sums.sum()
    return everything - (everything - sums)


def by_largest(x: Tensor) -> Tensor:
    by = x.abs().amax() + 1 if x.numel() else x.new_ones(())
    return in_lanes(x / by) * by


pair("differences of one running sum", total, running, in_lanes)
pair("the sum of all without the others", total, without_others, in_lanes)
pair("scaled by the largest of the batch", total, by_largest, in_lanes)


def shifted(x: Tensor, by: Tensor) -> Tensor:
    powers = (x - by).exp()
    return powers / in_lanes(powers)[:, None]


pair(
    "the maximum of the batch",
    softmax,
    lambda x: shifted(x, x.amax() if x.numel() else x.new_zeros(())),
    lambda x: shifted(x, x.amax(-1, keepdim=True) if x.shape[1] else x.new_zeros(())),
)


def each_product(x: Tensor, w: Tensor) -> Tensor:
    out = x.new_zeros(x.shape[0], w.shape[0])
    for k in range(x.shape[1]):
        out = out + x[:, k, None] * w[:, k]
    return out


def each_distance(x: Tensor, y: Tensor) -> Tensor:
    out = x.new_zeros(x.shape[0], y.shape[0])
    for k in range(x.shape[1]):
        out = out + (x[:, k, None] - y[:, k]) ** 2
    return out.sqrt()


def one_row_by_a_vector(x: Tensor, w: Tensor) -> Tensor:
    return each_product(x, w) if x.shape[0] != 1 else (w * x).flip(1).cumsum(1)[:, -1:].T


pair("the matrix product of PyTorch", product, lambda x, w: x @ w.T, each_product)
pair("a matrix and a vector", product, one_row_by_a_vector, each_product)
pair("the distances of PyTorch", distances, torch.cdist, each_distance)
pair("the sum of columns of PyTorch", columns, lambda x: x.sum(0), lambda x: in_lanes(x.T))

_TOTAL = """
#include <opsmith/kernel.h>
#include "{name}.h"
#include <vector>

void {name}(const opsmith::Context& ctx, const batches::{name}_args& a) {{
{body}
}}
OPSMITH_KERNEL(batches, {name}, cpu)
"""


def _cpp(name: str, body: str) -> Path:
    return opsmith.cpp(_TOTAL.format(name=name.replace(" ", "_"), body=body))


_ROWS = """\
  ctx.parallel_for(0, a.N, 1, [&](int64_t begin, int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      float lanes[4] = {};
      const int used = %s;
      for (int64_t c = 0; c < a.C; ++c) lanes[c %% used] += a.x(n, c);
      a.out(n) = (lanes[0] + lanes[1]) + (lanes[2] + lanes[3]);
    }
  });"""
_PARTS = """\
  // Each part of the memory adds what it has of a row: where parts begin depends on the batch.
  std::vector<float> parts(a.N * 8);
  const int64_t all = a.N * a.C;
  for (int64_t part = 0; part < 8; ++part)
    for (int64_t i = all * part / 8; i < all * (part + 1) / 8; ++i)
      parts[(i / a.C) * 8 + part] += a.x(i / a.C, i % a.C);
  for (int64_t n = 0; n < a.N; ++n) {
    float sum = 0;
    for (int64_t part = 0; part < 8; ++part) sum += parts[n * 8 + part];
    a.out(n) = sum;
  }"""
for name, wrong in {
    "compiled lanes by the place in a chunk": _ROWS % "n - begin < 2 ? 4 : 1",
    "compiled parts of the whole memory": _PARTS,
}.items():
    pair(name, total, _cpp(f"{name}__wrong", wrong), _cpp(f"{name}__right", _ROWS % "4"))
