"""Calls on several ranks, all of which are this process: distribute tensors, and put them together.

Tensors are cut here and not by DTensor, so that DTensor's results are compared with something else.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from opsmith.checks.numerics.gradients import gradients_by, zero_where_none
from opsmith.compat.torch_distributed import (
    as_every_rank,
    group_without_others,
    of_each_rank,
    one_per_rank,
    outside_modes,
)
from opsmith.kernels import HOST
from opsmith.operators import Operator
from opsmith.operators.core.arguments import tensors_in
from opsmith.operators.dispatch.ranks.sharding import calling

if TYPE_CHECKING:
    from torch.distributed.tensor import DeviceMesh, DTensor

#: By number of ranks: the factors with which a value is split into one summand for each rank. The
#: products are exact, and the signs differ, so that the summands of ``relu(x)`` or ``abs(x)`` do
#: not pass for those of a linear function.
_MULTIPLES = {2: (2, -1), 3: (1, 1, -1), 4: (1, 1, -1, 0)}
#: The largest sum of magnitudes of summands, as a multiple of the value's.
MAGNITUDE = 3
_noted: ContextVar[tuple[Operator | None, list[dict[str, Any]]]] = ContextVar(
    "noted", default=(None, [])
)


@contextmanager
def mesh_of(shape: Sequence[int]) -> Iterator[DeviceMesh]:
    """Yield a mesh of ranks, for a block; inside `every_rank`, this process is each rank."""
    from torch.distributed.tensor import init_device_mesh

    count = math.prod(shape)
    with group_without_others(count):
        with as_every_rank(count):
            mesh = init_device_mesh(HOST, tuple(shape))
        yield mesh


@contextmanager
def noting(operator: Operator, ended: list[dict[str, Any]]) -> Iterator[None]:
    """Append the arguments of each rank's call that raises, or whose gradient does, for a block."""
    token = _noted.set((operator, ended))
    try:
        yield
    finally:
        _noted.reset(token)


@contextmanager
def last_of(count: int) -> Iterator[DeviceMesh]:
    """Yield a mesh whose last rank is this process, for a block; other ranks send zeros."""
    from torch.distributed.tensor import init_device_mesh

    with group_without_others(count, count - 1):
        yield init_device_mesh(HOST, (count,))


@contextmanager
def every_rank(shape: Sequence[int]) -> Iterator[None]:
    """Let this process be all ranks of a mesh, for a block, and call opsmith's operators per rank.

    PyTorch's own emulation only moves data between ranks: in a reference that reads a size, it does
    not support tensors whose sizes differ between ranks.
    """
    token = calling.set(_call_each)
    try:
        with as_every_rank(math.prod(shape)):
            yield
    finally:
        calling.reset(token)


def _call_each(overload: Any, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
    arguments = [*args, *kwargs.values()]
    tensors = tensors_in(arguments)
    count = max(len(of_each_rank(tensor)) for tensor in tensors)

    @contextmanager
    def noted(own: Sequence[Tensor]) -> Iterator[tuple[Sequence[Any], Mapping[str, Any]]]:
        """Yield the arguments of a rank, which are noted if the call or its gradient raises."""
        rest = iter(own)
        filled = [_filled(value, rest) for value in arguments]
        named = dict(zip(kwargs, filled[len(args) :], strict=True))
        try:
            yield filled[: len(args)], named
        except Exception:
            operator, ended = _noted.get()
            if operator is not None and overload is operator.overload:
                ended.append(operator.arguments(tuple(filled[: len(args)]), named))
            raise

    def call(own: Sequence[Tensor]) -> Any:
        with noted(own) as (positional, named):
            return overload(*positional, **named)

    if torch.is_grad_enabled() and any(tensor.requires_grad for tensor in tensors):
        form: list[Any] = []
        flat = _EachRank.apply(call, noted, count, form, *tensors)
        rest = iter(flat)
        return _filled(form[0], rest)
    with outside_modes():
        returned = [call(_own(tensors, rank)) for rank in range(count)]
    if returned[0] is None:
        return None
    every = [tensors_in(one) for one in returned]
    rest = iter([one_per_rank(several) for several in zip(*every, strict=True)])
    return _filled(returned[0], rest)


class _EachRank(torch.autograd.Function):
    """Calls an operator for each rank, and differentiates each call by itself."""

    @staticmethod
    def forward(
        ctx: Any, call: Any, noted: Any, count: int, form: list[Any], *tensors: Tensor
    ) -> Any:
        ctx.leaves, ctx.results, ctx.noted = [], [], noted
        with outside_modes(), torch.enable_grad():
            for rank in range(count):
                own = [
                    part.detach().requires_grad_(tensor.requires_grad)
                    for part, tensor in zip(_own(tensors, rank), tensors, strict=True)
                ]
                returned = call(own)
                form[:] = [returned]
                ctx.leaves.append(own)
                ctx.results.append(tensors_in(returned))
        found = [
            one_per_rank([result.detach() for result in several])
            for several in zip(*ctx.results, strict=True)
        ]
        several = zip(found, ctx.results[0], strict=True)
        ctx.mark_non_differentiable(*[one for one, result in several if not result.requires_grad])
        return tuple(found)

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Any:
        every: list[list[Tensor]] = []
        with outside_modes():
            for rank, (own, results) in enumerate(zip(ctx.leaves, ctx.results, strict=True)):
                wanted = [leaf for leaf in own if leaf.requires_grad]
                pairs = [
                    (result, grad)
                    for result, grad in zip(results, _own(grads, rank), strict=True)
                    if result.requires_grad
                ]
                with ctx.noted(own):
                    found = gradients_by(pairs, wanted)
                every.append(zero_where_none(wanted, found))
        rest = iter([one_per_rank(several) for several in zip(*every, strict=True)])
        needed = [next(rest) if leaf.requires_grad else None for leaf in ctx.leaves[0]]
        return None, None, None, None, *needed


def _own(tensors: Sequence[Tensor], rank: int) -> list[Tensor]:
    several = [of_each_rank(tensor) for tensor in tensors]
    return [one[rank] if len(one) > 1 else one[0] for one in several]


def _filled(value: Any, rest: Iterator[Tensor]) -> Any:
    """Return a value in which each tensor is replaced by the next tensor of `rest`."""
    if isinstance(value, Tensor):
        return next(rest)
    if isinstance(value, list | tuple) and any(isinstance(item, Tensor | list) for item in value):
        return type(value)(_filled(item, rest) for item in value)
    return value


def parts_of(tensor: Tensor, shape: Sequence[int], placements: Sequence[Any]) -> list[Tensor]:
    """Return what each rank of a mesh holds of a tensor."""

    def local(rank: int) -> Tensor:
        part, rest = tensor, rank
        for position, (size, placement) in enumerate(zip(shape, placements, strict=True)):
            place, rest = divmod(rest, math.prod(shape[position + 1 :]))
            part = _part(part, placement, place, size)
        return part.contiguous().clone()

    return [local(rank) for rank in range(math.prod(shape))]


def joined(
    parts: Sequence[Tensor], whole: Tensor, mesh: DeviceMesh, placements: Sequence[Any]
) -> DTensor:
    """Return a DTensor of what each rank holds; to be called inside `every_rank`."""
    from torch.distributed.tensor import DTensor

    return DTensor.from_local(
        one_per_rank(parts),
        mesh,
        list(placements),
        run_check=False,
        shape=whole.shape,
        stride=whole.contiguous().stride(),
    )


def _part(tensor: Tensor, placement: Any, place: int, size: int) -> Tensor:
    """Return what the rank at a place of a mesh dimension holds of a tensor."""
    if placement.is_replicate():
        return tensor
    if placement.is_partial():
        multiples = torch.tensor(_MULTIPLES[size], device=tensor.device).to(tensor.dtype)
        turns = (torch.arange(tensor.numel(), device=tensor.device) + place) % size
        return tensor * multiples[turns].view(tensor.shape)
    whole = tensor.shape[placement.dim]
    step = -(-whole // size)
    start = min(place * step, whole)
    return tensor.narrow(placement.dim, start, min(step, whole - start))


def gathered(tensor: Any) -> list[Tensor]:
    """Return the whole of a DTensor as each rank has it; to be called inside `every_rank`."""
    return of_each_rank(tensor.detach().full_tensor() if hasattr(tensor, "full_tensor") else tensor)
