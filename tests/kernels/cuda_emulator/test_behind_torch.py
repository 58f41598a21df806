"""PyTorch's host code is no obstacle to the emulation, but for what needs CUDA's libraries."""

import pytest
from jaxtyping import Float32
from torch import Tensor

from opsmith.kernels import kernel_source
from opsmith.kernels.cuda_emulator import emulated, emulated_behind_torch, find_obstacle
from opsmith.kernels.cuda_emulator.obstacles import obstacle_of
from opsmith.kernels.cuda_emulator.own_code import OwnCode
from opsmith.signature import signature_of

HOST = """#include <ATen/cuda/CUDAContext.h>
#include <torch/extension.h>
#include <THC/THCAtomics.cuh>
"""


def same(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
    return x


@pytest.mark.slow(cases=9)
@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("void f() { at::cuda::getCurrentCUDAStream(); c10::cuda::CUDAGuard g(0); }", ""),
        ("#include <ATen/native/cuda/block_reduce.cuh>", ""),
        ("#ifdef WITH_PYTHON\n#include <Python.h>\n#endif", ""),
        ("#include <Python.h>", "Python's C interface"),
        (
            "#include <ATen/cuda/CUDABlas.h>",
            "a library of NVIDIA's, through ATen",
        ),
        (
            "#include <ATen/cuda/CUDAGraphsUtils.cuh>",
            "random numbers or graphs of CUDA's",
        ),
    ],
)
def test_host_code_is_no_obstacle_but_for_what_needs_more(tmp_path, text, expected):
    path = tmp_path / "kernel.cu"
    path.write_text(f"{HOST}{text}\n")
    source = kernel_source(signature_of(same, "a::same"), "cuda", path, api="torch")
    found = find_obstacle(emulated_behind_torch(source))
    assert str(found) == (f"it uses {expected}, at kernel.cu:4" if expected else "None")


def test_host_code_is_an_obstacle_to_other_sources(tmp_path):
    path = tmp_path / "kernel.cu"
    path.write_text(HOST)
    source = kernel_source(signature_of(same, "a::same"), "cuda", path)
    found = str(find_obstacle(emulated(source)))
    assert found == "it uses PyTorch's C++ interface, at kernel.cu:1"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("#include <ATen/cuda/CUDABlas.h>", "a library of NVIDIA's, through ATen"),
        ("#include <ATen/cuda/cub.cuh>", "CUB, through ATen"),
        ("#include <ATen/cuda/CUDAGeneratorImpl.h>", "random numbers or graphs of CUDA's"),
        ("auto h = at::cuda::getCurrentCUDABlasHandle();", "a library of NVIDIA's, through ATen"),
        ("at::PhiloxCudaState state;", "random numbers of CUDA's"),
        ("cuda::barrier<> a;", "a part of libcu++ that is not emulated"),
        ("cuda::std::atomic<int> a;", "a part of libcu++ that is not emulated"),
        ("#include <Python.h>", "Python's C interface"),
    ],
)
def test_what_needs_more_of_cuda_is_named_with_its_line(text, words):
    before = '#line 1 "host.cu"\n\n\n\n'
    header = text.startswith("#") and text.partition("<")[2].rstrip(">")
    included = ((header, len(before)),) if header else ()
    found = obstacle_of(OwnCode(f"{before}{text}\n", included), behind_torch=True, warp=32)
    assert str(found) == f"it uses {words}, at host.cu:4"
