"""Call operators on four devices of XLA's, all of which are this process.

Prints, for each call, the operator, the shardings, and the collectives of the compiled program.
"""

import itertools
import os
import re
import sys
import tempfile
from pathlib import Path
from typing import Annotated

os.environ["XLA_FLAGS"] = "--xla_force_host_platform_device_count=4"

import jax
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec as P
from jaxtyping import Float
from torch import Tensor

import opsmith

SOURCE = """
#include <opsmith/kernel.h>
#include "add_to.h"
#include "normed.h"
#include "normed_backward.h"
#include "product.h"

template <typename T>
void product(const opsmith::Context&, const split::product_args<T>& a) {
  for (int64_t n = 0; n < a.N; ++n) {
    for (int64_t m = 0; m < a.M; ++m) {
      T sum = 0;
      for (int64_t k = 0; k < a.K; ++k) sum += a.x(n, k) * a.y(k, m);
      a.out(n, m) = sum * static_cast<T>(a.scale);
    }
  }
}
OPSMITH_KERNEL(split, product, cpu, float, double)

template <typename T>
void normed(const opsmith::Context&, const split::normed_args<T>& a) {
  for (int64_t i = 0; i < a.x.numel(); i += a.C) {
    T sum = 0;
    for (int64_t c = 0; c < a.C; ++c) sum += a.x[i + c] * a.x[i + c];
    for (int64_t c = 0; c < a.C; ++c) a.out[i + c] = a.x[i + c] / sum * a.w[c];
  }
}
OPSMITH_KERNEL(split, normed, cpu, float, double)

template <typename T>
void normed_backward(const opsmith::Context&, const split::normed_backward_args<T>& a) {
  for (int64_t i = 0; i < a.x.numel(); i += a.C) {
    T sum = 0, along = 0;
    for (int64_t c = 0; c < a.C; ++c) {
      sum += a.x[i + c] * a.x[i + c];
      along += a.grad[i + c] * a.w[c] * a.x[i + c];
    }
    for (int64_t c = 0; c < a.C; ++c) {
      a.out[i + c] = (a.grad[i + c] * a.w[c] - 2 * a.x[i + c] * along / sum) / sum;
    }
  }
}
OPSMITH_KERNEL(split, normed_backward, cpu, float, double)

template <typename T>
void add_to(const opsmith::Context&, const split::add_to_args<T>& a) {
  for (int64_t i = 0; i < a.x.numel(); ++i) {
    for (size_t j = 0; j < a.ys.size(); ++j) a.x[i] += a.ys[j][i];
    if (a.z) a.x[i] += (*a.z)[i];
  }
}
OPSMITH_KERNEL(split, add_to, cpu, float, double)
"""


@opsmith.op("split::product", parallel_dims=("N", "M"), summed_dims=("K",))
def product(
    x: Float[Tensor, "N K"], y: Float[Tensor, "K M"], scale: float = 1.0
) -> Float[Tensor, "N M"]:
    return x @ y * scale


@opsmith.op("split::normed", parallel_dims=("*s",))
def normed(
    x: Float[Tensor, "*s C"], w: Annotated[Float[Tensor, "C"], opsmith.NonDifferentiable()]
) -> Float[Tensor, "*s C"]:
    return x / (x * x).sum(-1, keepdim=True) * w


@opsmith.op("split::normed_backward", parallel_dims=("*s",))
def normed_backward(
    grad: Float[Tensor, "*s C"], x: Float[Tensor, "*s C"], w: Float[Tensor, "C"]
) -> Float[Tensor, "*s C"]:
    sums, given = (x * x).sum(-1, keepdim=True), grad * w
    return (given - 2 * x * (given * x).sum(-1, keepdim=True) / sums) / sums


normed.register_backward(normed_backward, grads={"x": 0})


@opsmith.op("split::add_to", mutates_args=("x",), parallel_dims=("N",))
def add_to(
    x: Float[Tensor, "N C"], ys: list[Float[Tensor, "N C"]], z: Float[Tensor, "N C"] | None = None
) -> None:
    for y in [*ys, *([] if z is None else [z])]:
        x.add_(y)


folder = Path(tempfile.mkdtemp())
(folder / "kernels.cpp").write_text(SOURCE)
for operator in (product, normed, normed_backward, add_to):
    operator.register_kernel("cpu", source=folder / "kernels.cpp")
opsmith.export([product, normed, add_to], target="jax", out=folder / "dist", say=None)
sys.path.insert(0, str(folder / "dist"))

import split_jax  # noqa: E402 - exported above

DEVICES = {
    kind: jax.make_mesh((2, 2), ("a", "b"), axis_types=(kind,) * 2)
    for kind in (AxisType.Auto, AxisType.Explicit)
}
RANDOM = np.random.default_rng(0)
COLLECTIVES = "all-reduce|all-gather|all-to-all|collective-permute|reduce-scatter"


def draw(*shape):
    return RANDOM.normal(size=shape).astype("float32")


def compare(what, function, arguments, places, kind=AxisType.Auto):
    """Compare a call with sharded arguments with the same on one device."""
    program = jax.jit(function)
    expected = program(*arguments)
    put = jax.tree.map(
        lambda x, spec: jax.device_put(x, NamedSharding(DEVICES[kind], spec)),
        arguments,
        places,
        is_leaf=lambda x: x is None,
    )
    text = program.lower(*put).compile().as_text()
    for one, true in zip(*map(jax.tree.leaves, (program(*put), expected)), strict=True):
        np.testing.assert_allclose(one, true, rtol=1e-4, atol=1e-5)
    shown = ", ".join(map(str, jax.tree.leaves(places)))
    moves = sorted(set(re.findall(COLLECTIVES, text)))
    print(f"{what}: {shown.replace('PartitionSpec', 'P')}: {' '.join(moves) or 'nothing'}")


def squared(function):
    return jax.grad(lambda *arguments: (function(*arguments) ** 2).sum())


def scaled(x, y):
    return split_jax.product(x, y, 2.0)


x, y = draw(4, 8), draw(8, 6)
for rows, inner, columns in itertools.product((None, "a", ("a", "b")), (None, "b"), (None, "a")):
    if rows != columns and not (inner and rows == ("a", "b")) and not (columns and rows):
        places = (P(rows, inner), P(inner, columns))
        compare("product", scaled, (x, y), places)
z, w = draw(4, 2, 6), draw(6)
for places in ((P("a", "b"), P()), (P("a", None, "b"), P("b"))):
    compare("normed", split_jax.normed, (z, w), places)
    compare("normed, gradient", squared(split_jax.normed), (z, w), places)
compare("normed, explicit", split_jax.normed, (z, w), (P("a", "b"), P()), AxisType.Explicit)
compare("uneven", lambda z, w: split_jax.normed(z[:3], w), (z, w), (P("a"), P()))
parts = draw(4, 3), (draw(4, 3), draw(4, 3)), draw(4, 3)
rows = P("a")
compare(
    "add_to", lambda x, ys, z: split_jax.add_to(x, list(ys), z), parts, (rows, (rows,) * 2, rows)
)
both = (x, draw(4, 8)), y
batched = jax.vmap(lambda x: split_jax.product(x, y))
np.testing.assert_allclose(batched(np.stack(both[0]))[1], both[0][1] @ y, rtol=1e-4)
one = jax.shard_map(
    split_jax.normed,
    mesh=DEVICES[AxisType.Auto],
    in_specs=(P("a", "b"), P()),
    out_specs=P("a", "b"),
    check_vma=False,
)
compare("shard_map", one, (z, w), (P("a", "b"), P()))
