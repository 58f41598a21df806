"""Sums of segments of pytorch_scatter (MIT): its loop for the CPU."""

from typing import Annotated

import torch
from fetched import sources
from jaxtyping import Float, Int64
from torch import Tensor

import opsmith
from opsmith import Sorted

ROOT = sources("rusty1s/pytorch_scatter", "648dda3cf964731ffb4de11eafc445a83133eda4")


@opsmith.op("downstream::segment_sum_csr", autograd="reference")
def segment_sum_csr(
    src: Float[Tensor, "E K"],
    indptr: Annotated[Int64[Tensor, "N+1"], Sorted(first=0, last="E")],
) -> Float[Tensor, "N K"]:
    """Sum the rows between two neighbours of `indptr`."""
    rows = torch.repeat_interleave(indptr.diff())
    return src.new_zeros(len(indptr) - 1, src.shape[1]).index_add(0, rows, src)


segment_sum_csr.register_kernel(
    "cpu",
    source=opsmith.cpp(
        f"""
#include <torch/extension.h>
#include "{ROOT}/csrc/cpu/segment_csr_cpu.cpp"

torch::Tensor segment_sum_csr(torch::Tensor src, torch::Tensor indptr) {{
  return std::get<0>(segment_csr_cpu(src, indptr, std::nullopt, "sum"));
}}
PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {{ m.def("segment_sum_csr", &segment_sum_csr); }}
"""
    ),
    api="torch",
)
