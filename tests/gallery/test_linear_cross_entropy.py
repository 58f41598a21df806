"""`linear_cross_entropy` is PyTorch's loss of the logits, with its gradients."""

import torch
from torch.nn import functional

from gallery.linear_cross_entropy.linear_cross_entropy import (
    linear_cross_entropy,
    linear_cross_entropy_backward,
)


def test_the_references_are_pytorchs_loss_of_the_logits_and_its_gradients() -> None:
    hidden, weight = torch.randn(5, 4, dtype=torch.float64), torch.randn(6, 4, dtype=torch.float64)
    leaves = hidden.requires_grad_(), weight.requires_grad_()
    targets = torch.tensor([0, 5, 2, 3, 3])
    expected = functional.cross_entropy(hidden @ weight.T, targets, reduction="none")
    torch.testing.assert_close(linear_cross_entropy.reference(hidden, weight, targets), expected)
    grad = torch.randn_like(expected)
    wanted = torch.autograd.grad(expected, leaves, grad)
    given = [one.detach() for one in leaves]
    found = linear_cross_entropy_backward.reference(grad, *given, targets)
    torch.testing.assert_close(found, wanted)
