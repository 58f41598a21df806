"""Call an operator with DTensors: choose a sharding rule, and call it on each rank's own parts.

PyTorch's ``register_sharding`` takes no operator that writes into an argument or has no result, and
no lists of tensors. It caches a rule's answers by the arguments from the first int on, so a rule
that reads a string gets the answer for another string. A rule for DTensor at
``torch.library.register_torch_dispatch`` has none of these limits, so all operators use it. Moving
data between ranks is left to ``DTensor.redistribute``.

Importing opsmith imports nothing of DTensor's module. An operator that is declared before registers
its rule when the module has been imported, and one that is declared afterwards does so at once.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from contextvars import ContextVar
from types import ModuleType
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from opsmith.compat.torch_distributed import DTENSORS, has_strategy, replicates_implicitly
from opsmith.errors import ArgumentError, OpsmithError
from opsmith.operators.core import registry
from opsmith.operators.core.arguments import MANY, describe, every_tensor_in, map_named_tensors
from opsmith.signature import Bindings, bind, result_shapes
from opsmith.system.post_import import when_imported
from opsmith.untyped import Args, Arguments, Context, Untyped, Value

if TYPE_CHECKING:
    from torch.distributed.tensor import DeviceMesh, DTensor

    from opsmith.operators.core.operator import Operator, RegisteredOperator
    from opsmith.operators.dispatch.ranks.sharding_rules import ConcreteRule


def _call(overload: Value, args: Sequence[object], kwargs: Arguments) -> object:
    return overload(*args, **kwargs)


#: Calls an operator with a rank's own tensors. In the row ``sharding`` of the checks, one process
#: is all ranks, and calls it for each.
calling: ContextVar[Callable[..., Value]] = ContextVar("calling", default=_call)


def register(operator: RegisteredOperator) -> None:
    """Let calls of an operator take DTensors, once DTensor's module has been imported."""
    kind = getattr(sys.modules.get(DTENSORS), "DTensor", None)
    if kind is not None:
        _register(operator, kind)


def _register(operator: RegisteredOperator, kind: type) -> None:
    registration = operator._registration
    if registration.dispatches(kind):  # the author's, by register_torch_dispatch
        return
    overload = operator.overload

    def rule(_: object, func: object, types: object, args: Args, kwargs: Arguments) -> object:
        del func, types
        if has_strategy(overload):
            # Somebody gave PyTorch a rule for this operator, which counts from now on.
            registration.withdraw_torch_dispatch(kind)
            return overload(*args, **(kwargs or {}))
        # Autograd has its own record of the call already.
        with torch.no_grad():
            return call_on_parts(operator, args, kwargs or {})

    registration.torch_dispatch(kind, rule)


def _arrived(module: ModuleType) -> None:
    for operator in registry.all_operators():
        _register(operator, module.DTensor)


when_imported(DTENSORS, _arrived)


def takes_dtensors(operator: Operator, args: Sequence[object], kwargs: Arguments) -> bool:
    """Return whether a call has DTensors, and PyTorch has no sharding rule of its own for it."""
    kind = getattr(sys.modules.get(DTENSORS), "DTensor", None)
    if kind is None:
        return False
    every = (*args, *kwargs.values())
    each = (item for value in every for item in (value if isinstance(value, MANY) else (value,)))
    return any(isinstance(item, kind) for item in each) and not has_strategy(operator.overload)


def call_on_parts(operator: Operator, args: Sequence[object], kwargs: Arguments) -> object:
    """Call an operator with DTensors, and return DTensors.

    If autograd is on, it records the redistribution, each rank's call on its own parts, and the
    sums over ranks that its gradients need.

    Raises:
        ArgumentError: an argument does not fit, is a plain tensor, or is on another mesh.
    """
    from opsmith.operators.dispatch.fake import check_size
    from opsmith.operators.dispatch.ranks.sharding_rules import chosen_rules

    signature = operator.signature
    arguments = operator.arguments(tuple(args), kwargs)
    mesh, arguments = _on_one_mesh(operator, arguments)
    bindings = bind(signature, describe(arguments, signature), check_size)
    chosen = chosen_rules(operator, arguments, mesh)
    local, moved = _to_parts(operator, arguments, mesh, chosen)
    positional, keywords = operator.split(local)
    returned = calling.get()(operator.overload, positional, keywords)
    given: dict[str, Value] = dict(every_tensor_in(arguments))
    own = dict(every_tensor_in(local))
    for name, part in moved.items():
        part.to_local().copy_(own[name])  # which is a contiguous copy of some parts
        _write_back(operator, name, given[name], part)
    return _from_parts(operator, returned, mesh, chosen, arguments, bindings)


# --- one mesh ----------------------------------------------------------------------------------


def _on_one_mesh(operator: Operator, arguments: Arguments) -> tuple[DeviceMesh, dict[str, Value]]:
    """Return the mesh of a call's DTensors, and its arguments, whose tensors are all DTensors."""
    from torch.distributed.tensor import DTensor, Replicate

    tensors = list(every_tensor_in(arguments))
    first, model = next((name, one) for name, one in tensors if isinstance(one, DTensor))
    mesh = model.device_mesh

    def distributed(name: str, tensor: Tensor) -> DTensor:
        if not isinstance(tensor, DTensor):
            if tensor.dim() and not replicates_implicitly():
                raise ArgumentError(
                    f"{operator.name}: argument {name!r} is a plain torch.Tensor, and {first!r} is "
                    f"a DTensor; if every rank holds the same {name!r}, pass "
                    f"DTensor.from_local({name}, {first}.device_mesh, [Replicate()]), and if each "
                    "holds a part, name its placement there."
                )
            return DTensor.from_local(tensor, mesh, [Replicate()] * mesh.ndim, run_check=False)
        if tensor.device_mesh != mesh:
            raise ArgumentError(
                f"{operator.name}: argument {name!r} is on the mesh {tensor.device_mesh}, and "
                f"{first!r} is on {mesh}; redistribute one of them, a call takes one mesh."
            )
        return tensor

    return mesh, map_named_tensors(arguments, distributed)


# --- to parts and back -------------------------------------------------------------------------


class _Part(torch.autograd.Function):
    """Gives a rank's own part of a DTensor, and takes the part of the gradient that it computes.

    Unlike ``DTensor.to_local``, it gives a gradient of uneven shards the strides of the whole.
    """

    @staticmethod
    def forward(ctx: Context, tensor: Untyped, placements: Sequence[object], moved: bool) -> Tensor:
        ctx.mesh, ctx.shape, ctx.placements = tensor.device_mesh, tensor.shape, placements
        local = _local(tensor, moved)
        return local.view_as(local)

    @staticmethod
    def backward(ctx: Context, grad: Tensor) -> tuple[object, None, None]:
        from torch.distributed.tensor import DTensor

        found = DTensor.from_local(
            grad.contiguous(),
            ctx.mesh,
            ctx.placements,
            run_check=False,
            shape=ctx.shape,
            stride=_contiguous(ctx.shape),
        )
        return found, None, None


def _local(tensor: DTensor, moved: bool) -> Tensor:
    """Return a rank's own part of a DTensor; contiguous, if it was sent."""
    local: Tensor = tensor.to_local()
    return local.contiguous() if moved else local


def _to_parts(
    operator: Operator, arguments: Arguments, mesh: DeviceMesh, rules: Sequence[ConcreteRule]
) -> tuple[dict[str, object], dict[str, DTensor]]:
    """Return the arguments of a rank's own call, and the copies of tensors that it writes into."""
    moved: dict[str, DTensor] = {}
    written = {parameter.name for parameter in operator.signature.mutated}

    def part(name: str, tensor: Value) -> Tensor:
        parameter = name.partition("[")[0]
        wanted = tuple(rule.arguments[parameter] for rule in rules)
        given = tensor
        if tensor.placements != wanted:
            tensor = tensor.redistribute(mesh, wanted)
            if parameter in written:
                moved[name] = tensor
        if not (torch.is_grad_enabled() and given.requires_grad):
            return _local(tensor, tensor is not given)
        gradients = [rule.gradient(parameter) for rule in rules]
        own: Tensor = _Part.apply(tensor, gradients, tensor is not given)
        return own

    return map_named_tensors(arguments, part), moved


def _write_back(operator: Operator, name: str, given: DTensor, part: DTensor) -> None:
    """Copy what a rank wrote into a redistributed argument back into the argument itself."""
    if any(placement.is_partial() for placement in given.placements):
        raise ArgumentError(
            f"{operator.name}: writes into {name!r}, whose placements are {given.placements}, and "
            "a new value cannot be written into partial sums; redistribute it first."
        )
    given.to_local().copy_(part.redistribute(given.device_mesh, given.placements).to_local())


def _from_parts(
    operator: Operator,
    returned: Value,
    mesh: DeviceMesh,
    rules: Sequence[ConcreteRule],
    arguments: Arguments,
    bindings: Bindings,
) -> object:
    """Return DTensors for the results that a rank computed."""
    from torch.distributed.tensor import DTensor

    from opsmith.operators.dispatch.fake import check_size

    signature = operator.signature
    if returned is None:
        return None
    shapes: list[Value] = []

    def whole(position: int) -> tuple[Untyped, Untyped]:
        """Return the shape and strides of a result of which each rank has a part."""
        if not signature.shaped:
            raise OpsmithError(
                f"{operator.name}: a rule shards the result {signature.results[position].name!r}, "
                'whose shape is not declared; declare it, as in Float[Tensor, "N C"].'
            )
        if not shapes:
            shapes.extend(result_shapes(signature, bindings, arguments, check_size))
        shape = torch.Size(shapes[position])
        return shape, _contiguous(shape)

    def gathered(position: int, local: Tensor) -> DTensor:
        placements = [rule.results[position] for rule in rules]
        shape, stride = local.shape, local.stride()
        if any(placement.is_shard() for placement in placements):
            shape, stride = whole(position)
        shares: dict[str, Untyped] = {}
        if any(rule.mixed for rule in rules):
            shares["grad_placements"] = [rule.incoming(position) for rule in rules]
        return DTensor.from_local(
            local, mesh, placements, run_check=False, shape=shape, stride=stride, **shares
        )

    def one(position: int, value: Value) -> object:
        if isinstance(value, list):
            return [gathered(position, item) for item in value]
        return gathered(position, value)

    if len(signature.results) == 1:
        return one(0, returned)
    return tuple(one(position, value) for position, value in enumerate(returned))


def _contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step = step * torch.sym_max(size, 1)
    return tuple(reversed(strides))
