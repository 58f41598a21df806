"""Make wrong kernels of right ones, of the kinds that programs which write kernels hand in."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

Kernel = Callable[..., Any]

#: The dtype that right kernels compute in.
DOUBLE = torch.float64


def in_double(function: Kernel) -> Kernel:
    """Return a kernel that computes in double precision, and rounds its floating result once."""

    def kernel(*arguments: Any) -> Any:
        result = function(*(_cast(one, DOUBLE) for one in arguments))
        return _cast(result, torch.float32)

    return kernel


def zeros(right: Kernel) -> Kernel:
    """Return a kernel whose results have the right shape, and are zero."""
    return lambda *arguments: torch.zeros_like(right(*arguments))


def cached(right: Kernel) -> Kernel:
    """Return a kernel that remembers a result for the shapes of its arguments."""
    known: dict[Any, Tensor] = {}

    def kernel(*arguments: Any) -> Tensor:
        key = tuple(tuple(one.shape) if isinstance(one, Tensor) else one for one in arguments)
        if key not in known:
            known[key] = right(*arguments)
        return known[key].clone()

    return kernel


def imprecise(right: Kernel) -> Kernel:
    """Return a kernel that rounds its arguments to bfloat16."""
    return lambda *arguments: right(
        *(_cast(_cast(one, torch.bfloat16), torch.float32) for one in arguments)
    )


def in_place(right: Kernel) -> Kernel:
    """Return a kernel that leaves its result, or what fits of it, in its first argument."""

    def kernel(*arguments: Any) -> Tensor:
        result = right(*arguments)
        first = arguments[0].view(-1)
        count = min(len(first), result.numel())
        first[:count] = result.reshape(-1)[:count]
        return result

    return kernel


def padded(right: Kernel) -> Kernel:
    """Return a kernel that leaves out what a block of 32 threads would not reach."""

    def kernel(*arguments: Any) -> Tensor:
        result = right(*arguments)
        flat = result.reshape(-1)
        flat[flat.numel() // 32 * 32 :] = 0
        return flat.view(result.shape)

    return kernel


#: Kinds of wrong kernels that each task has, beside one of its own.
KINDS: Mapping[str, Callable[[Kernel], Kernel]] = {
    "zeros": zeros,
    "cached": cached,
    "imprecise": imprecise,
    "in place": in_place,
    "padded": padded,
}


def register(spec: Any, kernels: Any, kind: str, names: Sequence[str]) -> None:
    """Register a kernel of one kind for tasks of a family.

    Args:
        spec: the module that declares the tasks.
        kernels: the module with the kernels: ``RIGHT`` and ``WRONG`` by the names of tasks, and the
            C++ sources of right ones, ``SOURCES``, where there are any.
        names: the tasks.
        kind: ``"right"``, ``"own"`` for the mistake that a task has for itself, or one of `KINDS`.
    """
    sources = getattr(kernels, "SOURCES", {})
    for name in names:
        operator, right = getattr(spec, name), kernels.RIGHT[name]
        if kind == "right" and name in sources:
            operator.register_kernel("cpu", source=sources[name])
        elif kind == "right":
            operator.register_kernel("cpu", right)
        elif kind == "own":
            operator.register_kernel("cpu", kernels.WRONG[name])
        else:
            operator.register_kernel("cpu", KINDS[kind](right))


def _cast(value: Any, dtype: torch.dtype) -> Any:
    return value.to(dtype) if isinstance(value, Tensor) and value.is_floating_point() else value
