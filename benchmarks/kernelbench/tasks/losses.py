"""Losses of a batch, and attention."""

from typing import Annotated

import torch
from jaxtyping import Float32, Int64
from stated import positive, task
from torch import Tensor
from torch.nn import functional

from opsmith import Index, Positive

Rows = Float32[Tensor, "N C"]
Loss = Float32[Tensor, ""]
Heads = Float32[Tensor, "B H S D"]


@task(94, prediction=(16, 30), target=(16, 30))
def mse_loss(prediction: Rows, target: Rows) -> Loss:
    return functional.mse_loss(prediction, target)


@task(95, scores=(16, 10), target=lambda generator: torch.randint(10, (16,), generator=generator))
def cross_entropy(scores: Rows, target: Annotated[Int64[Tensor, "N"], Index("C")]) -> Loss:
    return functional.cross_entropy(scores, target)


@task(96, prediction=(16, 30), target=(16, 30))
def huber_loss(prediction: Rows, target: Rows) -> Loss:
    return functional.smooth_l1_loss(prediction, target)


@task(97, q=(2, 2, 12, 8), k=(2, 2, 12, 8), v=(2, 2, 12, 8))
def attention(q: Heads, k: Heads, v: Heads) -> Heads:
    # Written out: PyTorch's function for it gives zeros for some rows that have a NaN.
    return torch.softmax(q @ k.transpose(2, 3) / q.shape[3] ** 0.5, 3) @ v


@task(98, prediction=positive(16, 30), target=positive(16, 30))
def kl_div(prediction: Annotated[Rows, Positive()], target: Annotated[Rows, Positive()]) -> Loss:
    return functional.kl_div(prediction.log(), target, reduction="batchmean")


@task(99, anchor=(16, 30), positive=(16, 30), negative=(16, 30), margin=1.0)
def triplet_margin(anchor: Rows, positive: Rows, negative: Rows, margin: float) -> Loss:
    near = ((anchor - positive) ** 2).sum(1).sqrt()
    far = ((anchor - negative) ** 2).sum(1).sqrt()
    return functional.relu(near - far + margin).mean()


@task(100, prediction=(64,), target=(64,))
def hinge_loss(prediction: Float32[Tensor, "N"], target: Float32[Tensor, "N"]) -> Loss:
    return (1 - prediction * target).clamp(min=0).mean()
