"""Operators that take no tensor: tables made of numbers alone."""

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
        "without_tensors_cuda::table: register_kernel('cuda'): the operator takes no tensor, so "
        "nothing says that a call is for cuda. Register a kernel for 'cpu', or take a tensor on "
        "the device that results belong on"
    )
