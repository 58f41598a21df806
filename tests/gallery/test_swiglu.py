"""`swiglu` is SiLU of one half times the other, with its gradient."""

import torch
from torch.nn import functional

from gallery.swiglu.swiglu import swiglu, swiglu_backward


def test_the_references_are_silu_of_one_half_times_the_other() -> None:
    x = torch.randn(3, 8, dtype=torch.float64, requires_grad=True)
    result = swiglu.reference(x)
    torch.testing.assert_close(result, functional.silu(x[:, :4]) * x[:, 4:])
    grad = torch.randn_like(result)
    (expected,) = torch.autograd.grad(result, x, grad)
    torch.testing.assert_close(swiglu_backward.reference(grad, x.detach()), expected)
