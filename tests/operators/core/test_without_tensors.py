"""Calls without a tensor: of tables made of numbers alone, and where every tensor is absent."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from jaxtyping import Float32
from torch import Tensor

import opsmith
from opsmith import checks


def _table(namespace: str) -> opsmith.Operator:
    @opsmith.op(f"{namespace}::table")
    def table(n: int, step: float = 1.0) -> Float32[Tensor, "{n}"]:
        """The first multiples of a step."""
        return torch.arange(n, dtype=torch.float32) * step

    return table


@pytest.mark.slow
def test_the_cpu_kernel_runs_in_eager_mode_and_compiled(tmp_path: Path) -> None:
    table = _table("without_tensors_cpp")
    source = tmp_path / "table.cpp"
    source.write_text(
        """
        #include <opsmith/kernel.h>
        #include "table.h"
        void table(const opsmith::Context&, const without_tensors_cpp::table_args& a) {
          for (int64_t i = 0; i < a.n; ++i) a.out[i] = static_cast<float>(i * a.step);
        }
        OPSMITH_KERNEL(without_tensors_cpp, table, cpu)
        """
    )
    table.register_kernel("cpu", source=source)
    table.register_cases(lambda dtype, seed: iter([{"n": 5, "step": 0.5}]), only=True)
    assert table(3, 0.5).tolist() == [0, 0.5, 1]
    assert table.kernels["cpu"].calls == 1
    with table.set_kernel_enabled("cpu", False):
        assert table(3, 0.5).tolist() == [0, 0.5, 1]
    report = checks.run(table, select=["dispatch", "reference", "compile", "export"])
    assert report.ok, report.explain()


def test_a_python_kernel_runs() -> None:
    table = _table("without_tensors_python")
    table.register_kernel("cpu", lambda n, step: torch.full((n,), -1.0))
    assert table(2).tolist() == [-1, -1]


def test_no_other_device_has_a_kernel_that_calls_could_reach() -> None:
    table = _table("without_tensors_cuda")
    with pytest.raises(opsmith.DeclarationError) as caught:
        table.register_kernel("cuda", lambda n, step: torch.zeros(n))
    assert str(caught.value) == (
        "without_tensors_cuda::table: register_kernel('cuda'): the operator takes no tensor, "
        "whose device would select cuda in a call. Register a kernel for 'cpu', or take a "
        "tensor on the device of the results"
    )


@opsmith.op("without_tensors::total")
def total(xs: list[Float32[Tensor, "N"]], n: int) -> Float32[Tensor, "{n}"]:
    """The sum of all elements, `n` times."""
    return torch.stack([torch.zeros(n), *(x.sum().expand(n) for x in xs)]).sum(0)


@opsmith.op("without_tensors::shifted")
def shifted(x: Float32[Tensor, "N"] | None, n: int) -> Float32[Tensor, "{n}"]:
    """The sum of `x`, `n` times."""
    return torch.zeros(n) + (0 if x is None else x.sum())


@shifted.register_kernel("cpu")
def _(x: Tensor | None, n: int) -> Tensor:
    return torch.full((n,), 0.0 if x is None else float(x.sum()))


@pytest.mark.long
def test_a_call_that_gives_none_of_its_tensors_reaches_the_cpu_kernel(tmp_path: Path) -> None:
    source = tmp_path / "total.cpp"
    source.write_text(
        """
        #include <opsmith/kernel.h>
        #include "total.h"
        void total(const opsmith::Context&, const without_tensors::total_args& a) {
          float sum = 0;
          for (int64_t j = 0; j < a.xs.size(); ++j) {
            for (int64_t i = 0; i < a.N; ++i) sum += a.xs[j][i];
          }
          for (int64_t i = 0; i < a.n; ++i) a.out[i] = sum;
        }
        OPSMITH_KERNEL(without_tensors, total, cpu)
        """
    )
    assert total([], 2).tolist() == shifted(None, 2).tolist() == [0, 0]
    assert (total.kernels["reference"].calls, shifted.kernels["cpu"].calls) == (1, 1)
    total.register_kernel("cpu", source=source)
    assert total([], 2).tolist() == [0, 0]
    assert total([torch.ones(3)], 2).tolist() == [3, 3]
    assert (total.kernels["reference"].calls, total.kernels["cpu"].calls) == (1, 2)
    with shifted.set_kernel_enabled("cpu", False):
        shifted(None, n=2)
    compiled = torch.compile(lambda n: total([], n) + shifted(None, n), fullgraph=True)
    assert compiled(2).tolist() == [0, 0]
    assert (total.kernels["cpu"].calls, shifted.kernels["cpu"].calls) == (3, 2)
    assert shifted.kernels["reference"].calls == 1
    for operator, names in ((total, ["dispatch", "jax-vmap"]), (shifted, ["dispatch", "compile"])):
        report = checks.run(operator, select=names, isolate=False, examples=20)
        assert report.ok, report.explain()
