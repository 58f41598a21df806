"""The row `nvcc` compiles sources of PyTorch extensions, where PyTorch has no CUDA."""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from jaxtyping import Float32
from torch import Tensor

import opsmith
from opsmith import checks

pytestmark = [
    pytest.mark.slow(cases=4),
    pytest.mark.skipif(shutil.which("nvcc") is None, reason="no nvcc"),
]
NUMBERS = itertools.count()
SOURCE = """#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>
#include <HEADER>
INCLUDE
namespace {
float of_the_host(float x) { return 2 * x; }

template <typename scalar_t>
__global__ void twice(const scalar_t* x, scalar_t* out, int n) {
  const int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) out[i] = VALUE;
}

at::Tensor doubled(const at::Tensor& x) {
  const c10::cuda::CUDAGuard guard(x.device());
  at::Tensor out = at::empty_like(x);
  AT_DISPATCH_FLOATING_TYPES(x.scalar_type(), "doubled", [&] {
    twice<scalar_t><<<(x.numel() + 255) / 256, 256, 0, at::cuda::getCurrentCUDAStream()>>>(
        x.data_ptr<scalar_t>(), out.data_ptr<scalar_t>(), x.numel());
  });
  return out;
}
}  // namespace
"""
BLOCK = """#include <torch/library.h>
TORCH_LIBRARY_IMPL(NAMESPACE, CUDA, m) { m.impl("doubled", &doubled); }
"""
MODULE = 'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("doubled", &doubled); }\n'


@pytest.fixture
def row(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    monkeypatch.setenv("OPSMITH_CUDA_ARCHS", "80")

    def checked(end: str = BLOCK, value: str = "2 * x[i]", include: str = "") -> Any:
        namespace = f"nvcc_behind_torch_{next(NUMBERS)}"

        @opsmith.op(f"{namespace}::doubled")
        def doubled(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
            return 2 * x

        text = (SOURCE + end).replace("NAMESPACE", namespace).replace("VALUE", value)
        source = tmp_path / "doubled.cu"
        # nvcc takes twice as long for the header of extensions, which only a module needs.
        header = "torch/extension.h" if end == MODULE else "ATen/ATen.h"
        source.write_text(text.replace("INCLUDE", include).replace("HEADER", header))
        doubled.register_kernel("cuda", source=source, api="torch")
        report = checks.run(doubled, select=["nvcc"])
        (found,) = (one for one in report.rows if one.check == "nvcc")
        return found

    return checked


@pytest.mark.parametrize("end", [BLOCK, MODULE], ids=["TORCH_LIBRARY", "PYBIND11_MODULE"])
def test_an_extension_is_compiled_and_its_kernels_are_measured(row, end: str) -> None:
    found = row(end)
    assert found.status == "passed", found.message
    assert any("twice (sm_80):" in note and "registers" in note for note in found.notes)


def test_what_nvcc_refuses_in_an_extension_fails(row) -> None:
    found = row(value="of_the_host(x[i])")
    assert (found.status, found.code) == ("failed", "OPS-BUILD-FAILED")
    assert "nvcc refuses it" in found.message and "doubled.cu(11)" in found.message
    assert "of_the_host" in found.message


def test_what_the_stand_ins_lack_is_named_and_no_failure(row) -> None:
    found = row(include="#include <ATen/cuda/CUDABlas.h>")
    assert found.status == "not applicable"
    assert "opsmith's stand-ins for PyTorch's CUDA headers lack this:" in found.message
