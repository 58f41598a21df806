"""A model that calls a function."""

from collections.abc import Callable
from typing import Any

from torch import Tensor, nn


class Call(nn.Module):
    """Calls a function, an operator for instance, with its inputs."""

    def __init__(self, function: Callable[..., Any]) -> None:
        super().__init__()
        self.function = function

    def forward(self, *inputs: Tensor) -> Any:
        return self.function(*inputs)
