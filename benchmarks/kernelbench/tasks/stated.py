"""State a task: its number in KernelBench's level 1, and the shapes of its registered cases."""

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import torch

import opsmith

#: The number in KernelBench's level 1 of each operator.
NUMBERS: dict[str, int] = {}


def task(number: int, **arguments: Any) -> Callable[[Callable[..., Any]], Any]:
    """Declare the decorated reference as an operator, with one case of its own for each seed.

    Args:
        number: the number of the task in KernelBench's level 1.
        arguments: by name, the shape of a tensor of random numbers, a function of a generator that
            makes a tensor, or a number.
    """

    def declare(reference: Callable[..., Any]) -> Any:
        operator = opsmith.op(f"kernelbench::{reference.__name__}")(reference)
        NUMBERS[operator.name] = number
        missing = set(inspect.signature(reference).parameters) - set(arguments)
        assert not missing, f"task {number} has no value for {missing}"

        @operator.register_cases
        def cases(dtype: torch.dtype, seed: int) -> Any:
            generator = torch.Generator().manual_seed(seed)
            yield {name: _made(one, generator) for name, one in arguments.items()}

        return operator

    return declare


def _made(stated: Any, generator: torch.Generator) -> Any:
    if callable(stated):
        return stated(generator)
    if isinstance(stated, Sequence):
        return torch.randn(tuple(stated), generator=generator)
    return stated


def positive(*shape: int) -> Callable[[torch.Generator], torch.Tensor]:
    """Return a function that makes numbers between 0.1 and 1.1."""
    return lambda generator: torch.rand(shape, generator=generator) + 0.1
