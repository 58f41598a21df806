"""The kernel at the Autograd key, which computes derivatives.

It serves three kinds of operator: with a hand-written backward, with derivatives from the
reference, and without derivatives. In the last case a request for a derivative is an error; a
derivative never silently comes out as zero or `None`.

* Reverse mode uses the hand-written backward, else the reference.
* Forward mode takes the tangents from the reference, which is plain PyTorch and so has every
  derivative. The results come from the operator itself, which validates its arguments as in any
  other call. A second derivative of ``autograd="reference"`` runs the reference.

The autograd node is a *single-level* function (`torch.autograd.function._SingleLevelFunction`).
This kernel already runs inside the active `torch.func` transform, as PyTorch's own derivatives do,
so the node must not enter the transform again. ``torch.library.register_autograd`` does enter it
again, and therefore fails under `torch.func.vjp`.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor
from torch.overrides import TorchFunctionMode

from opsmith.compat.functorch import unwrapped
from opsmith.compat.torch_autograd import (
    SingleLevelFunction,
    any_requires_grad,
    data_of_tensor,
    in_transform,
    may_have_tangents,
    needs_derivative,
    single_level,
)
from opsmith.compat.torch_dispatch import (
    after_autograd,
    after_versions,
    below_autograd,
    below_versions,
)
from opsmith.errors import DifferentiationError
from opsmith.operators.core.arguments import MANY, each_tensor, map_tensors
from opsmith.operators.core.lazy import late
from opsmith.operators.core.source_location import line_of

if TYPE_CHECKING:
    from opsmith.operators.core.operator import Operator


def kernel(operator: Operator) -> Callable[..., Any]:
    """Return the kernel for the Autograd key; its first argument is the keyset."""
    overload = operator.overload
    slow = late(lambda: derivative_kernel(operator))

    def autograd(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        if needs_derivative(args, kwargs):
            return slow(keyset, *args, **kwargs)
        with below_autograd():
            return overload.redispatch(keyset & after_autograd, *args, **kwargs)

    return autograd


def derivative_kernel(operator: Operator) -> Callable[..., Any]:
    """Return the kernel for calls that are known to need a derivative or to carry tangents."""
    from opsmith.operators.dispatch.forward_mode import forward_mode, has_tangent, written_names
    from opsmith.operators.dispatch.sharding import call_on_parts, takes_dtensors

    overload = operator.overload
    nodes = _Nodes(operator)

    def derivative(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        if takes_dtensors(operator, args, kwargs):
            # Each rank differentiates the call on its own parts, in whichever way the operator has.
            return call_on_parts(operator, args, kwargs)
        args, kwargs = _with_memory(args, kwargs)
        if operator.signature.nondifferentiable:
            args, kwargs = _detached(operator, args, kwargs)
        if may_have_tangents() and has_tangent((*args, *kwargs.values())):
            return forward_mode(operator, args, kwargs, functools.partial(derivative, keyset))
        if not (torch.is_grad_enabled() and any_requires_grad(*args, *kwargs.values())):
            with below_autograd():
                return overload.redispatch(keyset & after_autograd, *args, **kwargs)
        if operator.signature.mutated:
            raise DifferentiationError(
                f"{operator.name}: writes into {written_names(operator)}, and a mutating operator "
                "has no gradient, but an argument requires one. Call it under torch.no_grad(), or "
                "detach() its arguments."
            )
        return nodes.apply(keyset, args, kwargs)

    return derivative


def _with_memory(args: Any, kwargs: Any) -> tuple[Any, Any]:
    """Allocate PyTorch's zero tensors without storage, on which some of its operators crash."""
    if not any(_has_no_storage(value) for value in (*args, *kwargs.values())):
        return args, kwargs

    def filled(value: Tensor) -> Tensor:
        return value.clone() if unwrapped(value)._is_zerotensor() else value

    given = tuple(map_tensors(value, filled) for value in args)
    return given, {name: map_tensors(value, filled) for name, value in kwargs.items()}


def _has_no_storage(value: Any) -> bool:
    """Return whether an argument is, or holds, a zero tensor of PyTorch's."""
    if isinstance(value, Tensor):
        return unwrapped(value)._is_zerotensor()
    return isinstance(value, MANY) and any(map(_has_no_storage, value))


def _detached(operator: Operator, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """Return a call's arguments with the tensors detached that are declared `NonDifferentiable`."""
    arguments = operator.arguments(args, kwargs)
    for name in operator.signature.nondifferentiable:
        value = arguments[name]
        if isinstance(value, list | tuple):
            arguments[name] = [item.detach() for item in value]
        elif value is not None:
            arguments[name] = value.detach()
    return operator.split(arguments)


class _Flat:
    """A call's tensors in one flat list, as autograd requires; lists of tensors are unpacked.

    Attributes:
        arguments: the call's arguments, by name.
        tensors: the tensors among the arguments; empty after `release`.
        count: number of tensors.
        places: position of each tensor argument in `tensors`; a range for a list of tensors, `None`
            for an absent tensor.
    """

    def __init__(self, arguments: dict[str, Any], names: Sequence[str]) -> None:
        self.arguments = arguments
        self.tensors: list[Tensor] = []
        self.places: dict[str, int | range | None] = {}
        for name in names:
            value = arguments[name]
            first = len(self.tensors)
            if value is None:
                self.places[name] = None
            elif isinstance(value, Tensor):
                self.tensors.append(value)
                self.places[name] = first
            else:
                self.tensors += value
                self.places[name] = range(first, len(self.tensors))
        self.count = len(self.tensors)

    def release(self) -> None:
        """Drop the tensors; `fill` puts others in their places."""
        self.tensors = []
        for name in self.places:
            self.arguments[name] = None

    def fill(self, tensors: Sequence[Tensor]) -> dict[str, Any]:
        """Return the arguments by name, with `tensors` in the places of the originals."""
        return {**self.arguments, **{name: _at(tensors, p) for name, p in self.places.items()}}


def _at(values: Sequence[Any], place: int | range | None) -> Any:
    """Return the value, or the list of values, at a place of `_Flat.places`."""
    if place is None:
        return None
    return values[place] if isinstance(place, int) else [values[p] for p in place]


class _Nodes:
    """A factory for the autograd nodes of one operator's calls."""

    def __init__(self, operator: Operator) -> None:
        self.operator = operator
        self.positional = [p.name for p in operator.signature.parameters if not p.keyword_only]
        self.tensors = [parameter.name for parameter in operator.signature.tensors]
        # If so, and none is absent, autograd has a call's tensors in the order of its arguments.
        self.only_tensors = all(p.is_tensor for p in operator.signature.parameters)
        results = operator.signature.results
        self.any_without_gradient = not all(result.differentiable for result in results)
        self.function = type(
            f"{operator.signature.namespace}_{operator.signature.name}",
            (SingleLevelFunction,),
            {"forward": staticmethod(self.forward), "backward": staticmethod(self.backward)},
        )

    def apply(self, keyset: Any, args: Any, kwargs: Any) -> Any:
        call = _Call(_Flat(self.operator.arguments(args, kwargs), self.tensors), keyset)
        function: Any = self.function
        if in_transform():
            with single_level():
                returned = function.apply(call, *call.flat.tensors)
        else:
            returned = function.apply(call, *call.flat.tensors)
        return call.structure(returned)

    def forward(self, ctx: Any, call: _Call, *tensors: Tensor) -> Any:
        operator = self.operator
        with below_autograd():
            positional: tuple[Any, ...] = tuple(call.flat.arguments.values())
            keywords: dict[str, Any] = {}
            if len(positional) > len(self.positional):
                positional, keywords = operator.split(call.flat.arguments)
            output = operator.overload.redispatch(
                call.keyset & after_autograd, *positional, **keywords
            )
            ctx._opsmith_call = call
            rule = operator.rule
            if rule.backward is not None:
                ctx.needs_input_grad = self._by_argument(call, ctx.needs_input_grad[1:])
                if rule.setup_context is not None:
                    inputs: dict[str, Any] = {"inputs": positional, "output": output}
                    if keywords:
                        inputs["keyword_only_inputs"] = keywords
                    rule.setup_context(ctx, **inputs)
            elif rule.reference:
                ctx.save_for_backward(*tensors)
        # ctx saves the tensors that backward needs; the node must not keep the others alive.
        call.flat.release()
        if self.any_without_gradient:
            ctx.mark_non_differentiable(*self._without_gradient(output))
        return call.flatten(output)

    def _without_gradient(self, output: Any) -> list[Tensor]:
        """Return the tensors among the results that are declared `NonDifferentiable`."""
        results = self.operator.signature.results
        many = output if len(results) > 1 else [output] * len(results)
        return [
            tensor
            for result, value in zip(results, many, strict=True)
            if not result.differentiable
            for tensor in (value if isinstance(value, list | tuple) else [value])
        ]

    def backward(self, ctx: Any, *grads: Tensor) -> Any:
        operator, call = self.operator, ctx._opsmith_call
        rule = operator.rule
        if rule.backward is not None:
            return (None, *self._by_hand(ctx, call, grads))
        if rule.reference:
            return (None, *_by_reference(operator, call, ctx.saved_tensors, grads, ctx))
        raise DifferentiationError(
            f"{operator.name}: has no gradient, but backward() reached it. Register one with "
            f"{operator.signature.name}.register_autograd(backward, setup_context=...), or, if its "
            'reference is differentiable PyTorch, declare it with autograd="reference".'
        )

    def _by_hand(self, ctx: Any, call: _Call, grads: Sequence[Tensor]) -> list[Any]:
        operator = self.operator
        assert operator.rule.backward is not None
        returned = operator.rule.backward(ctx, *call.structured_grads(grads))
        if not isinstance(returned, tuple):
            returned = (returned,)
        if len(returned) != len(self.positional):
            raise DifferentiationError(
                f"{operator.name}: its backward returned {len(returned)} gradients, expected "
                f"{len(self.positional)}, one for each of {', '.join(self.positional)} "
                "(None for what has none)."
            )
        found: list[Any] = [None] * call.flat.count
        for name, grad in zip(self.positional, returned, strict=True):
            place = call.flat.places.get(name)
            if isinstance(place, int):
                found[place] = grad
            elif place is not None and grad is not None:
                if len(grad) != len(place):
                    raise DifferentiationError(
                        f"{operator.name}: its backward returned {len(grad)} gradients for the "
                        f"list {name!r}, expected {len(place)}."
                    )
                found[place.start : place.stop] = grad
        return found

    def _by_argument(self, call: _Call, needs: Sequence[bool]) -> tuple[Any, ...]:
        """Return whether each argument needs a gradient, in torch.library's order."""
        if call.flat.count == len(self.positional) and self.only_tensors:
            return tuple(needs)
        order = [call.flat.places.get(name) for name in self.positional]
        return tuple([_at(needs, place) if place is not None else False for place in order])


class _Call:
    """The arguments of one differentiated call, and the structure of its results."""

    def __init__(self, flat: _Flat, keyset: Any) -> None:
        self.flat = flat
        self.keyset = keyset
        self.template: Any = None

    def flatten(self, output: Any) -> Any:
        """Flatten results to what the autograd node returns: a tensor, or a tuple of tensors."""
        if isinstance(output, Tensor):
            self.template = None
            return output
        many = output if isinstance(output, tuple) else (output,)
        self.template = (
            isinstance(output, tuple),
            [len(item) if isinstance(item, list) else None for item in many],
        )
        flat: list[Tensor] = []
        for item in many:
            flat.extend(item if isinstance(item, list) else [item])
        return tuple(flat)

    def structure(self, returned: Any) -> Any:
        """Restore the structure that `flatten` removed."""
        if self.template is None:
            return returned
        is_tuple, lengths = self.template
        rest = list(returned if isinstance(returned, tuple) else (returned,))
        many: list[Any] = []
        for length in lengths:
            if length is None:
                many.append(rest.pop(0))
            else:
                many.append([rest.pop(0) for _ in range(length)])
        return tuple(many) if is_tuple else many[0]

    def structured_grads(self, grads: Sequence[Tensor]) -> tuple[Any, ...]:
        """Return gradients of the results, in lists where the results are lists."""
        if self.template is None:
            return tuple(grads)
        structured = self.structure(tuple(grads))
        return structured if isinstance(structured, tuple) else (structured,)


def _by_reference(
    operator: Operator, call: _Call, saved: Sequence[Tensor], grads: Sequence[Tensor], ctx: Any
) -> list[Tensor | None]:
    """Return gradients, computed by differentiating the reference at the saved arguments."""
    needed = ctx.needs_input_grad[1:]
    differentiate = _reference_vjp if in_transform() else _reference_grad

    def outputs_of(wanted: Sequence[Tensor]) -> tuple[list[Tensor], list[Tensor]]:
        """Return the reference's differentiable results, and the incoming gradients for them."""
        rest = iter(wanted)
        inputs = [next(rest) if need else t for t, need in zip(saved, needed, strict=True)]
        try:
            returned = operator.reference(**call.flat.fill(inputs))
        except RuntimeError as error:
            from opsmith.compat.torch_tracing import asks_for_values

            if not asks_for_values(error):
                raise
            raise DifferentiationError(_decides_by_values(operator, error)) from error
        outputs = call.flatten(returned)
        outputs = (outputs,) if isinstance(outputs, Tensor) else outputs
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
    return [next(found) if need else None for need in needed]


def _decides_by_values(operator: Operator, error: RuntimeError) -> str:
    return (
        f'{operator.name}: declared with autograd="reference", which torch.compile traces, and its '
        "reference decides by values of its arguments, which no trace knows"
        f"{line_of(error, operator.reference)}. Declare its backward as an operator of its own, "
        "which no trace looks into, and name it by register_backward."
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
        self, function: Any, types: Any, args: Any = (), kwargs: Any = None
    ) -> Any:
        name = getattr(function, "__name__", "")
        # Of all attribute reads (__get__), only .data leaves the graph.
        own = name in self._OUT and (name != "__get__" or function == data_of_tensor)
        # Reading an integer tensor's value does not leave the graph either: no graph contains it.
        own = own and any(isinstance(arg, Tensor) and arg.requires_grad for arg in args)
        self.left |= own or not torch.is_grad_enabled()
        return function(*args, **(kwargs or {}))


def _leaves_pytorch(reference: Callable[[], Any]) -> bool:
    """Return whether a reference, whose results need no gradient, took a tensor out of the graph.

    If it did not, the results do not depend on the arguments, and the gradient is zero.
    """
    with _Leaving() as watching:
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

    vjp = torch.func.vjp(outputs, *wanted)[1]
    found: Sequence[Tensor] = vjp(tuple(grads))
    return found


def increment_versions(operator: Operator) -> Callable[..., Any]:
    """Return the ADInplaceOrView kernel of a mutating operator, which raises version counters.

    Autograd compares these counters to detect that a saved tensor was overwritten.
    """
    overload = operator.overload
    names = [parameter.name for parameter in operator.signature.mutated]
    after = after_versions

    def kernel(keyset: Any, *args: Any, **kwargs: Any) -> Any:
        arguments = operator.arguments(args, kwargs)
        with below_versions():
            returned = overload.redispatch(keyset & after, *args, **kwargs)
        torch.autograd.graph.increment_version(
            [tensor for name in names for tensor in each_tensor(arguments[name])]
        )
        return returned

    return kernel
