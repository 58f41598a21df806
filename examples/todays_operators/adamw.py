"""AdamW over a list of parameters, as PyTorch's fused optimizer has it (arXiv:1711.05101)."""

from pathlib import Path
from typing import Annotated

from jaxtyping import Float
from torch import Tensor

import opsmith
from opsmith import Between


@opsmith.op("today::adamw", mutates_args=("params", "exp_avgs", "exp_avg_sqs"))
def adamw(
    params: list[Float[Tensor, "?*S"]],
    grads: list[Float[Tensor, "?*S"]],
    exp_avgs: list[Float[Tensor, "?*S"]],
    exp_avg_sqs: Annotated[list[Float[Tensor, "?*S"]], Between(0, None)],
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


adamw.register_kernel("cpu", source=Path(__file__).with_name("adamw.cpp"))
