"""PyTorch's host code is no obstacle to the emulation, but for what needs CUDA's libraries."""

import pytest

from opsmith.kernels.cuda_emulator import find_obstacle

HOST = """#include <ATen/cuda/CUDAContext.h>
#include <torch/extension.h>
#include <THC/THCAtomics.cuh>
"""


@pytest.fixture
def obstacle(tmp_path):
    def found(text):
        source = tmp_path / "host.cu"
        source.write_text(HOST + text)
        return str(find_obstacle(source, behind_torch=True))

    return found


def test_host_code_is_no_obstacle_to_a_source_that_registers_itself(obstacle):
    stream = "auto stream = at::cuda::getCurrentCUDAStream();\nc10::cuda::CUDAGuard g(0);\n"
    assert obstacle(f"void f() {{ {stream} }}") == "None"


def test_host_code_is_an_obstacle_to_other_sources(tmp_path):
    source = tmp_path / "host.cu"
    source.write_text(HOST)
    assert str(find_obstacle(source)) == "it uses PyTorch's C++ interface, at host.cu:1"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("#include <ATen/cuda/CUDABlas.h>", "a library of NVIDIA's, through ATen"),
        ("#include <ATen/cuda/cub.cuh>", "CUB, through ATen"),
        ("#include <ATen/cuda/CUDAGeneratorImpl.h>", "random numbers or graphs of CUDA's"),
        ("auto h = at::cuda::getCurrentCUDABlasHandle();", "a library of NVIDIA's, through ATen"),
        ("at::PhiloxCudaState state;", "random numbers of CUDA's"),
        (
            "#include <cub/device/device_merge_sort.cuh>",
            "a part of CUB that is not emulated",
        ),
        ("cuda::barrier<> a;", "a part of libcu++ that is not emulated"),
        ("cuda::std::atomic<int> a;", "a part of libcu++ that is not emulated"),
        ("#include <Python.h>", "Python's C interface"),
    ],
)
def test_what_needs_more_of_cuda_is_named_with_its_line(obstacle, text, words):
    assert obstacle(text) == f"it uses {words}, at host.cu:4"
