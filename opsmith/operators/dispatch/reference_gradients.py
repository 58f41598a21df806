"""Gradients by differentiating the reference: ``autograd="reference"``."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from opsmith.compat.functorch import alive
from opsmith.compat.torch_autograd import data_of_tensor, in_transform
from opsmith.errors import DifferentiationError
from opsmith.operators.core.operator import Operator
from opsmith.operators.core.source_location import line_of
from opsmith.operators.dispatch.recorded_call import RecordedCall
from opsmith.untyped import Context, Untyped, Value


def by_reference(
    operator: Operator,
    call: RecordedCall,
    saved: Sequence[Tensor],
    grads: Sequence[Tensor],
    ctx: Context,
) -> list[Tensor | None]:
    """Return gradients, computed by differentiating the reference at the saved arguments."""
    needed = ctx.needs_input_grad[1 : 1 + call.flat.count]
    differentiate = _reference_vjp if in_transform() else _reference_grad

    def outputs_of(wanted: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """Return the reference's differentiable results, and the incoming gradients for them."""
        rest = iter(wanted)
        inputs = [next(rest) if need else t for t, need in zip(saved, needed, strict=True)]
        for position in call.written:
            inputs[position] = inputs[position].clone()
        try:
            returned = operator.reference(**call.flat.fill(inputs))
        except RuntimeError as error:
            from opsmith.compat.torch_tracing import asks_for_values

            if not asks_for_values(error):
                raise
            raise DifferentiationError(_decides_by_values(operator, error)) from error
        outputs: Value = () if returned is None else call.flatten(returned)
        outputs = (outputs,) if isinstance(outputs, Tensor) else outputs
        outputs = (*outputs, *(inputs[position] for position in call.dirty))
        pairs = [(o, grad) for o, grad in zip(outputs, grads, strict=True) if o.requires_grad]
        if not pairs and _leaves_pytorch(lambda: operator.reference(**call.flat.fill(inputs))):
            raise DifferentiationError(
                f'{operator.name}: declared with autograd="reference", but its reference gives a '
                "result that does not depend on its arguments differentiably (it left PyTorch, or "
                "detached). Register a backward with register_autograd."
            )
        return [output for output, _ in pairs], [grad for _, grad in pairs]

    wanted = [tensor for tensor, need in zip(saved, needed, strict=True) if need]
    found = iter(differentiate(outputs_of, wanted))
    return [next(found) if need else None for need in (*needed, *(False for _ in call.written))]


def _decides_by_values(operator: Operator, error: RuntimeError) -> str:
    return (
        f'{operator.name}: declared with autograd="reference", which torch.compile traces, and its '
        "reference reads values of its arguments, to branch or as an index of no dimensions, which "
        f"a trace does not have{line_of(error, operator.reference)}. Declare its backward as an "
        "operator of its own, which is not traced into, and name it by register_backward."
    )


class _Leaving(TorchFunctionMode):
    """A mode that detects functions which take a tensor out of the graph."""

    _OUT = frozenset(
        {"detach", "detach_", "item", "tolist", "numpy", "__array__", "__get__", "__float__"}
        | {"__int__", "__bool__", "__index__", "__complex__"}
    )

    def __init__(self) -> None:
        super().__init__()
        self.left = False

    def __torch_function__(
        self, function: Untyped, types: object, args: Value = (), kwargs: Value = None
    ) -> object:
        name = getattr(function, "__name__", "")
        # Reading .data is the only attribute read (__get__) that leaves the graph.
        own = name in self._OUT and (name != "__get__" or function == data_of_tensor)
        # Reading an integer tensor's value does not leave the graph either: no graph contains it.
        own = own and any(isinstance(arg, Tensor) and arg.requires_grad for arg in args)
        self.left |= own or not torch.is_grad_enabled()
        return function(*args, **(kwargs or {}))


def _leaves_pytorch(reference: Callable[[], object]) -> bool:
    """Return whether a reference, whose results need no gradient, took a tensor out of the graph.

    If it did not, the results do not depend on the arguments, and the gradient is zero.
    """
    watching = _Leaving()
    with watching:
        reference()
    return watching.left


_Outputs = Callable[[Sequence[Tensor]], tuple[list[Tensor], list[Tensor]]]


def _reference_grad(outputs_of: _Outputs, wanted: list[Tensor]) -> Sequence[Tensor | None]:
    create_graph = torch.is_grad_enabled()
    with torch.enable_grad():
        leaves = [_leaf(tensor, create_graph) for tensor in wanted]
        outputs, grads = outputs_of(leaves)
        if not outputs:
            return [None] * len(leaves)
        return torch.autograd.grad(
            outputs, leaves, grads, create_graph=create_graph, allow_unused=True
        )


def _leaf(tensor: Tensor, create_graph: bool) -> Tensor:
    """Return a tensor to differentiate with respect to.

    If a graph is built, return a view of the saved argument, so that the second derivative exists
    too. The view requires no gradient if the argument was saved inside a `torch.func` transform
    that has ended, since its graph is gone; then return a detached leaf.
    """
    if create_graph:
        view = tensor.view_as(tensor)
        if view.requires_grad:
            return view
    return tensor.detach().requires_grad_()


def _reference_vjp(outputs_of: _Outputs, wanted: list[Tensor]) -> Sequence[Tensor | None]:
    # Under a torch.func transform, the saved arguments may belong to a level that has ended, so
    # differentiate them in a new level.
    grads: list[Tensor] = []

    def outputs(*inputs: Tensor) -> tuple[Tensor, ...]:
        found, grads_found = outputs_of(inputs)
        if not found:  # vjp needs at least one result
            found = grads_found = [inputs[0].new_zeros(())]
        grads.extend(grads_found)
        return tuple(found)

    vjp = torch.func.vjp(outputs, *map(alive, wanted))[1]
    found: Sequence[Tensor] = vjp(tuple(grads))
    return found
