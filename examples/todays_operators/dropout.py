"""Dropout by a counter-based generator, whose mask the backward computes again."""

from typing import Annotated, Any

from jaxtyping import Float
from torch import Tensor

import opsmith
from opsmith import Between, philox


@opsmith.op("today::dropout")
def dropout(
    x: Float[Tensor, "*shape"],
    rng: opsmith.Philox = None,
    p: Annotated[float, Between(0, 0.99)] = 0.5,
) -> Float[Tensor, "*shape"]:
    """Zero each element with probability p, and scale the others by 1 / (1 - p).

    Args:
        x: any tensor.
        rng: seed and offset; drawn from the generator where a call leaves them out.
        p: the probability with which an element is zeroed.

    Source:
        ``torch.nn.functional.dropout``; Srivastava et al., JMLR 2014.
    """
    return x * philox.bernoulli(rng, 1 - p, x.shape) * (1 / (1 - p))


@opsmith.op("today::dropout_backward")
def dropout_backward(
    grad: Float[Tensor, "*shape"], rng: opsmith.Philox, p: Annotated[float, Between(0, 0.99)]
) -> Float[Tensor, "*shape"]:
    """Give the gradient, by the mask of the same seed and offset."""
    return grad * philox.bernoulli(rng, 1 - p, grad.shape) * (1 / (1 - p))


dropout.register_kernel("cpu", source="dropout.cpp")
dropout_backward.register_kernel("cpu", source="dropout.cpp")
dropout.register_kernel("cuda", source="dropout.cu")
dropout_backward.register_kernel("cuda", source="dropout.cu")
dropout.register_backward(dropout_backward, grads={"x": 0})


@dropout.register_distribution
def distribution(x: Tensor, p: float, result: Tensor) -> dict[str, Any]:
    """State how often an element is kept."""
    return {"kept": (result[x != 0] != 0, 1 - p)}
