"""PyTorch's host code is no obstacle to the emulation, but for what needs CUDA's libraries."""

import pytest
import torch
from jaxtyping import Float32
from torch import Tensor

from emulators.cuda.obstacles import obstacle_of
from emulators.cuda.own_code import OwnCode
from opsmith.checks import harness
from opsmith.checks.harness import Phase
from opsmith.kernels import kernel_source
from opsmith.kernels.languages.emulated_cuda import emulated, emulated_behind_torch, find_obstacle
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
    included = ((text.partition(" ")[2], len(before)),) if text.startswith("#") else ()
    found = obstacle_of(OwnCode(f"{before}{text}\n", included), behind_torch=True, warp=32)
    assert str(found) == f"it uses {words}, at host.cu:4"


BOTH = """#include <torch/extension.h>
#include <ATen/cuda/CUDAContext.h>
#include <ATen/native/cuda/block_reduce.cuh>
namespace {
__global__ void sum_kernel(const float* x, float* out, int n) {
  __shared__ float room[32];
  float sum = threadIdx.x < n ? x[threadIdx.x] : 0.0f;
  sum = at::native::cuda_utils::BlockReduceSum<float>(sum, room);
  for (int i = threadIdx.x; i < n; i += blockDim.x) out[i] = x[i];
  if (threadIdx.x == 0) out[0] = sum;
}
at::Tensor same(const at::Tensor& x) {
  at::Tensor out = at::empty_like(x);
  sum_kernel<<<1, 128, 0, at::cuda::getCurrentCUDAStream()>>>(x.data_ptr<float>(),
                                                              out.data_ptr<float>(), x.numel());
  return out;
}
at::Tensor wrong(const at::Tensor& x) { return x; }
}  // namespace
TORCH_LIBRARY_FRAGMENT(a, m) { m.def("same(Tensor x) -> Tensor"); }
TORCH_LIBRARY_IMPL(a, CUDA, m) { m.impl("same", &same); }
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("same", &wrong, "the module's own"); }
"""


@pytest.mark.long
def test_a_module_beside_a_block_is_emulated_and_so_is_pytorchs_own_reduction(tmp_path):
    path = tmp_path / "both.cu"
    path.write_text(BOTH)
    signature = signature_of(same, "a::same")
    source = emulated_behind_torch(kernel_source(signature, "cuda", path, api="torch"))
    built = harness.build(source, emulated=True)
    x = torch.rand(100)
    ((one,),) = harness.run(built, signature, [{"x": x}], [Phase(emulated=True)])
    assert not one.refused, one.refused
    torch.testing.assert_close(one.results[0], torch.cat([x.sum()[None], x[1:]]))
