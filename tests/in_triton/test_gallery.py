"""`bev_pool_v2` in Triton keeps every line of the gallery's contract."""

import os
import sys
from pathlib import Path

import pytest
import torch

import opsmith

if not os.environ.get("OPSMITH_REQUIRE_TRITON"):
    pytest.importorskip("triton", reason="no Triton here; make triton installs it and runs these")
sys.path.insert(0, str(Path(__file__).parents[2]))

from gallery.bev_pool_v2.bev_pool_v2 import bev_pool_v2
from gallery.bev_pool_v2.in_triton import bev_pool_v2_backward_triton, bev_pool_v2_triton
from gallery.bev_pool_v2.inputs import cases

CASES = list(cases(torch.float32, 0))


@pytest.mark.parametrize("number", range(len(CASES) - 1))
def test_forward_and_backward_are_those_of_the_reference(number):
    case = CASES[number]
    rest = list(case.values())[2:]
    leaves = [case[name].clone().requires_grad_() for name in ("depth", "feat")]
    expected = bev_pool_v2.reference(*leaves, *rest)
    grad = torch.randn_like(expected)
    wanted = torch.autograd.grad(expected, leaves, grad)
    before = bev_pool_v2_backward_triton.kernels["cuda"].calls
    with opsmith.emulate("cuda"):
        pooled = bev_pool_v2_triton(*leaves, *rest)
        torch.testing.assert_close(pooled, expected)
        torch.testing.assert_close(torch.autograd.grad(pooled, leaves, grad), wanted)
    assert bev_pool_v2_backward_triton.kernels["cuda"].calls == before + 1


def test_half_types_are_summed_in_float():
    zeros = torch.zeros(3000, dtype=torch.int32)
    with opsmith.emulate("cuda"):
        pooled = bev_pool_v2_triton(
            torch.ones(1, 1, 1, 1, 1).half(),
            torch.ones(1, 1, 1, 1, 3).half(),
            *[zeros] * 3,
            torch.tensor([0], dtype=torch.int32),
            torch.tensor([3000], dtype=torch.int32),
            (1, 1, 1),
        )
    assert pooled.flatten().tolist() == [3000.0] * 3
