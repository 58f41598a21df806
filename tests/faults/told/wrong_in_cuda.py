"""The planted faults of CUDA kernels as operators that `opsmith check` takes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from cuda_faults import GROUPS, IN_TORCH, Group
from jaxtyping import Float32
from torch import Tensor

import opsmith


def _reference(group: Group) -> Callable[..., Any]:
    def right(x: Float32[Tensor, "N"], fault: str, wrong: bool) -> Float32[Tensor, "N"]:
        return group.faults[fault][1](x).to(x.dtype)

    return right


def _declared(group: Group) -> opsmith.Operator:
    operator = opsmith.op(f"cuda_faults::{group.signature.name}")(_reference(group))
    operator.register_kernel("cuda", source=group.source, api=group.api)
    return operator


OPERATORS = {group.signature.name: (group, _declared(group)) for group in (*GROUPS, IN_TORCH)}


def wrong(group: str, fault: str) -> tuple[opsmith.Operator, dict[str, Any]]:
    """Return the operator of a group of kernels, and the arguments that show a fault of it."""
    of_faults, operator = OPERATORS[group]
    count = of_faults.faults[fault][0]
    x = torch.rand(count, generator=torch.Generator().manual_seed(count)) + 0.25
    return operator, {"x": x, "fault": fault, "wrong": True}
