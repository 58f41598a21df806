"""Results without a gradient, and results that select, are the same in JAX."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import pytest
import torch
from jaxtyping import Float32, Int64
from torch import Tensor

import opsmith
from opsmith import NonDifferentiable, Selects

jax = pytest.importorskip("jax")

SOURCE = """
#include <opsmith/kernel.h>
#include "twice.h"
#include "twice_backward.h"
void twice(const opsmith::Context&, const jax_without_gradients::twice_args& a) {
  for (int64_t i = 0; i < a.N; ++i) {
    a.out0(i) = 2 * a.x(i);
    a.out1(i) = a.x(i) * a.x(i);
    if (i == 0 || a.x(i) > a.x(a.out2())) a.out2() = i;
  }
}
OPSMITH_KERNEL(jax_without_gradients, twice, cpu)
void twice_backward(const opsmith::Context&, const jax_without_gradients::twice_backward_args& a) {
  for (int64_t i = 0; i < a.N; ++i) a.out(i) = 2 * a.grad_out0(i);
}
OPSMITH_KERNEL(jax_without_gradients, twice_backward, cpu)
"""


def copied(x: Tensor) -> Tensor:
    return x.clone()


@pytest.mark.slow
def test_a_result_without_a_gradient_has_none_in_jax(tmp_path: Path) -> None:
    @opsmith.op("jax_without_gradients::twice")
    def twice(
        x: Float32[Tensor, "N"],
    ) -> tuple[
        Float32[Tensor, "N"],
        Annotated[Float32[Tensor, "N"], NonDifferentiable()],
        Annotated[Int64[Tensor, ""], Selects(copied)],
    ]:
        return 2 * x, x * x, x.argmax()

    @opsmith.op("jax_without_gradients::twice_backward")
    def twice_backward(grad_out0: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
        return 2 * grad_out0

    twice.register_backward(twice_backward, grads={"x": 0})
    source = tmp_path / "twice.cpp"
    source.write_text(SOURCE)
    for operator in (twice, twice_backward):
        operator.register_kernel("cpu", source=source, flags=("-O0",))
    artifact = opsmith.export(twice, target="jax", out=tmp_path / "dist", say=None)
    function = opsmith.load(artifact.folder).ops.twice
    x = jax.numpy.asarray(torch.arange(3.0).numpy())
    assert function(x)[1].tolist() == [0, 1, 4]
    assert function(x)[2] == 2
    found = jax.grad(lambda x: sum(result.sum() for result in function(x)[:2]))(x)
    assert found.tolist() == [2, 2, 2]
