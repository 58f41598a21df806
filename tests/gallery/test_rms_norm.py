"""`rms_norm` and `add_rms_norm` are PyTorch's norm, with its gradients."""

import torch
from torch.nn import functional

from gallery.add_rms_norm.add_rms_norm import add_rms_norm, add_rms_norm_backward
from gallery.rms_norm.rms_norm import rms_norm, rms_norm_backward


def test_the_references_are_pytorchs_norm_and_its_gradients() -> None:
    x, weight = torch.randn(3, 8, dtype=torch.float64), torch.randn(8, dtype=torch.float64)
    leaves = x.requires_grad_(), weight.requires_grad_()
    expected = functional.rms_norm(x, (8,), weight, 1e-5)
    torch.testing.assert_close(rms_norm.reference(x, weight, 1e-5), expected)
    grad = torch.randn_like(expected)
    wanted = torch.autograd.grad(expected, leaves, grad)
    found = rms_norm_backward.reference(grad, x.detach(), weight.detach(), 1e-5)
    torch.testing.assert_close(found, wanted)


def test_the_sum_is_left_in_place_and_has_its_gradient() -> None:
    x, weight = torch.randn(3, 8, dtype=torch.float64), torch.randn(8, dtype=torch.float64)
    leaves = [torch.randn(3, 8, dtype=torch.float64, requires_grad=True), weight.requires_grad_()]
    total = leaves[0] + x
    expected = functional.rms_norm(total, (8,), leaves[1], 1e-5)
    residual = leaves[0].detach().clone()
    found = add_rms_norm.reference(x, residual, weight, 1e-5)
    torch.testing.assert_close((found, residual), (expected, total))
    grads = torch.randn(2, 3, 8, dtype=torch.float64).unbind()
    wanted = torch.autograd.grad([expected, total], leaves, grads)
    backward = add_rms_norm_backward.reference(*grads, residual, weight.detach(), 1e-5)
    torch.testing.assert_close(backward, wanted)
