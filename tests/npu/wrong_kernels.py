"""Kernels with the mistakes that a device shows and a CPU hides."""

from __future__ import annotations

import backend
import torch
from jaxtyping import Float32
from torch import Tensor

import opsmith

FLAGS = (f"-I{backend.INCLUDE}",)


@opsmith.op("npu_faults::reads_on_the_host")
def reads_on_the_host(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
    return x + 1


reads_on_the_host.register_kernel("npu", source="sources/reads_on_the_host.cpp", flags=FLAGS)


@opsmith.op("npu_faults::adds_too_much")
def adds_too_much(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
    return x + 1


adds_too_much.register_kernel("npu", lambda x: x + 2)


@opsmith.op("npu_faults::does_not_wait")
def does_not_wait(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
    return x + 1


@does_not_wait.register_kernel("npu")
def on_a_stream_of_its_own(x: Tensor) -> Tensor:
    with torch.Stream(device=x.device):
        return (x.cpu() + 1).to(x.device)
