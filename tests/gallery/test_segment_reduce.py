"""`segment_reduce` is what a loop over the segments gives, with its gradient."""

import pytest
import torch

from gallery.segment_reduce.segment_reduce import segment_reduce, segment_reduce_backward

LENGTHS = [0, 3, 1, 0, 4]


@pytest.mark.parametrize("reduce", ["sum", "mean", "max"])
def test_the_references_are_a_loop_over_segments(reduce: str) -> None:
    x = torch.randint(4, (8, 3)).double().requires_grad_()  # some are equally the maximum
    offsets = torch.tensor([0, *LENGTHS]).cumsum(0)
    names = {"sum": torch.sum, "mean": torch.mean, "max": torch.amax}
    rows = [names[reduce](part, 0) if len(part) else part.sum(0) for part in x.split(LENGTHS)]
    expected = torch.stack(rows)
    found = segment_reduce.reference(x.detach(), offsets, reduce)
    torch.testing.assert_close(found, expected)
    grad = torch.randn_like(expected)
    (wanted,) = torch.autograd.grad(expected, x, grad)
    backward = segment_reduce_backward.reference(grad, x.detach(), found, offsets, reduce)
    torch.testing.assert_close(backward, wanted)
