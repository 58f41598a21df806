"""Ways to call an operator that change nothing about its result, and PyTorch's transforms."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from typing import Any, TypeVar

import torch
from torch import Tensor

from opsmith.checks.numerics.torch_threads import threads
from opsmith.operators.core.arguments import every_tensor_in, is_float8, map_named_tensors
from opsmith.operators.core.operator import Operator

PLAIN = ""
NO_GRAD = "torch.no_grad()"
INFERENCE = "torch.inference_mode()"
THREAD = "a second thread"
MANY_THREADS = "17 threads"

#: The ways other than a plain call.
WAYS = (NO_GRAD, INFERENCE, THREAD, MANY_THREADS)
_CONTEXTS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    NO_GRAD: torch.no_grad,
    INFERENCE: torch.inference_mode,
    # More threads than most machines have, and no multiple of a power of two.
    MANY_THREADS: lambda: threads(17),
}

Returned = TypeVar("Returned")


def caller_of(operator: Operator, kernel: str) -> Callable[..., Any]:
    """Return what calls a kernel: the operator, or an operator of its own for a variant."""
    return operator.variant(kernel) if kernel in operator.variants else operator


def call_in(way: str, function: Callable[[], Returned]) -> Returned:
    """Call a function in a way.

    Args:
        way: one of `WAYS`; `PLAIN` for none.
    """
    if way == THREAD:
        with ThreadPoolExecutor(1) as pool:
            return pool.submit(function).result()
    with _CONTEXTS.get(way, nullcontext)():
        return function()


def described(way: str) -> str:
    """Return how an operator was called, as the beginning of a message; empty for a plain call."""
    if way in (NO_GRAD, INFERENCE):
        return f"called under {way}"
    if way == THREAD:
        return f"called from {way}"
    return f"called with {way}" if way else ""


Call = Callable[[Mapping[str, Any]], Any]
"""Calls the operator with arguments by name."""

AUTOCAST = "autocast"
"""The name of the way that may cast floating tensors to another dtype."""


def ways(
    operator: Operator, call: Call, arguments: Mapping[str, Any]
) -> Iterator[tuple[str, Call]]:
    """Yield the name and the function of each way to call an operator with arguments like these.

    Args:
        call: calls the operator directly.
        arguments: arguments by name; the yielded functions accept arguments of the same kinds.
    """
    given = dict(every_tensor_in(arguments))
    smooth = [
        name
        for name, tensor in given.items()
        if (tensor.is_floating_point() or tensor.is_complex()) and not is_float8(tensor.dtype)
    ]
    if not operator.signature.mutated:
        if smooth:
            if operator.rule.reference:
                yield "jvp", lambda arguments: _jvp(call, arguments, smooth)
            yield "vjp", lambda arguments: _with(torch.func.vjp, call, arguments, smooth)
        if given:
            yield "vmap", lambda arguments: _vmap(call, arguments)
            yield (
                "functionalize",
                lambda arguments: _with(_functionalize, call, arguments, list(given)),
            )
    devices = {tensor.device.type for tensor in given.values()} - {"meta"}
    if len(devices) == 1 and torch.amp.is_autocast_available(device := devices.pop()):
        yield AUTOCAST, lambda arguments: _autocast(call, arguments, device)


def _with(
    transform: Callable[..., Any], call: Call, arguments: Mapping[str, Any], names: list[str]
) -> Any:
    """Call under `transform`, as a function of only the tensors called `names`."""

    def function(*inputs: Tensor) -> Any:
        given = dict(zip(names, inputs, strict=True))
        return call(map_named_tensors(arguments, lambda name, own: given.get(name, own)))

    tensors = dict(every_tensor_in(arguments))
    return transform(function, *(tensors[name] for name in names))


def _functionalize(function: Callable[..., Any], *inputs: Tensor) -> Any:
    return torch.func.functionalize(function)(*inputs)


def _jvp(call: Call, arguments: Mapping[str, Any], names: list[str]) -> Any:
    def transform(function: Callable[..., Any], *inputs: Tensor) -> Any:
        return torch.func.jvp(function, inputs, tuple(torch.ones_like(one) for one in inputs))

    return _with(transform, call, arguments, names)


def _vmap(call: Call, arguments: Mapping[str, Any]) -> Any:
    """Call with every tensor repeated twice along a batch dimension."""

    def transform(function: Callable[..., Any], *inputs: Tensor) -> Any:
        return torch.vmap(function)(*(one.expand(2, *one.shape) for one in inputs))

    return _with(transform, call, arguments, [name for name, _ in every_tensor_in(arguments)])


def _autocast(call: Call, arguments: Mapping[str, Any], device: str) -> Any:
    with torch.autocast(device, dtype=torch.bfloat16):
        return call(arguments)
