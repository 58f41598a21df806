"""AdamW over a list of parameters, as PyTorch's fused optimizer has it (arXiv:1711.05101)."""

from collections.abc import Iterator
from pathlib import Path
from typing import Annotated, Any

import torch
from jaxtyping import Float
from torch import Tensor

import opsmith
from opsmith import Between


@opsmith.op("today::adamw", mutates_args=("params", "exp_avgs", "exp_avg_sqs"))
def adamw(
    params: list[Float[Tensor, "?*S"]],
    grads: list[Float[Tensor, "?*S"]],
    exp_avgs: list[Float[Tensor, "?*S"]],
    exp_avg_sqs: list[Float[Tensor, "?*S"]],
    step: Annotated[int, Between(1, None)],
    lr: float = 1e-3,
    beta1: Annotated[float, Between(0, 0.999)] = 0.9,
    beta2: Annotated[float, Between(0, 0.9999)] = 0.999,
    weight_decay: float = 1e-2,
    eps: Annotated[float, Between(1e-10, None)] = 1e-8,
) -> None:
    """Take one step: decay the parameters, then move them by the averages of their gradients."""
    first, second = 1 - beta1**step, 1 - beta2**step
    for param, grad, average, square in zip(params, grads, exp_avgs, exp_avg_sqs, strict=True):
        average.mul_(beta1).add_(grad, alpha=1 - beta1)
        square.mul_(beta2).add_(grad * grad, alpha=1 - beta2)
        param.mul_(1 - lr * weight_decay)
        param.sub_(lr / first * average / ((square / second).sqrt() + eps))


@adamw.register_cases(only=True)  # an average of squares is not negative
def cases(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    """Lists of tensors of the same shapes."""
    generator = torch.Generator().manual_seed(seed)

    def several(shapes: list[tuple[int, ...]]) -> list[Tensor]:
        return [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]

    for shapes, numbers in (
        ([(3, 4), (4,), ()], {"step": 1}),
        ([(5, 2), (7,), ()], {"step": 1}),  # the sizes alone differ
        ([(3, 4), (4,), ()], {"step": 7, "lr": 0.1, "weight_decay": 0.2, "eps": 0.1}),
        ([(3, 4), (4,), ()], {"step": 2, "beta1": 0.5, "beta2": 0.8}),
        ([(17,), (0, 3), (1, 1), (300,)], {"step": 100}),
        ([], {"step": 2}),
    ):
        yield {
            "params": several(shapes),
            "grads": several(shapes),
            "exp_avgs": several(shapes),
            "exp_avg_sqs": [one.square() for one in several(shapes)],
            **numbers,
        }


adamw.register_kernel("cpu", source=Path(__file__).with_name("adamw.cpp"))
