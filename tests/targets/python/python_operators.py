"""Operators that tell what arrives in their kernels."""

from __future__ import annotations

from pathlib import Path

import torch
from jaxtyping import Float, Int64
from torch import Tensor

import opsmith

SOURCES = Path(__file__).parent / "sources"
FLAGS = ("-O0", "-Wall", "-Wextra", "-Werror")


@opsmith.op("python_test::look")
def look(x: Float[Tensor, "N M"]) -> Int64[Tensor, "3"]:
    """The address of `x`, and its strides."""
    return torch.tensor([x.data_ptr(), *x.stride()])


@opsmith.op("python_test::look_strided")
def look_strided(x: Float[Tensor, "N M"]) -> Int64[Tensor, "3"]:
    """The same, for a kernel that takes strides."""
    return torch.tensor([x.data_ptr(), *x.stride()])


@opsmith.op("python_test::wait_for", mutates_args=("flag",))
def wait_for(flag: Int64[Tensor, "1"]) -> None:
    """Return once `flag` is not 0."""


look.register_kernel("cpu", source=SOURCES / "look.cpp", flags=FLAGS)
look_strided.register_kernel("cpu", source=SOURCES / "look_strided.cpp", flags=FLAGS, strided=True)
wait_for.register_kernel("cpu", source=SOURCES / "wait_for.cpp", flags=FLAGS)
