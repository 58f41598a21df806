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

from collections.abc import Callable, Sequence

import torch
from torch import Tensor
from torch.autograd import forward_ad
from torch.autograd.function import once_differentiable

from opsmith.compat.functorch import unwrapped
from opsmith.compat.torch_autograd import (
    SingleLevelFunction,
    any_requires_grad,
    in_transform,
    is_zero_tensor,
    may_have_tangents,
    needs_derivative,
    recording,
    single_level,
)
from opsmith.compat.torch_dispatch import (
    ZERO_TENSOR,
    after_autograd,
    after_versions,
    below_autograd,
    below_versions,
)
from opsmith.errors import DifferentiationError
from opsmith.operators.core.arguments import MANY, each_tensor, map_tensors
from opsmith.operators.core.lazy import late
from opsmith.operators.core.operator import Operator
from opsmith.operators.dispatch.recorded_call import (
    Flat,
    RecordedCall,
    at,
    functional_form,
    is_recorded,
    require_recordable,
    written_names,
)
from opsmith.operators.dispatch.reference_gradients import by_reference
from opsmith.signature import Signature
from opsmith.untyped import Args, Arguments, Context, Untyped, Value

#: The code of each backward that cannot be differentiated, as its author says by the decorator.
_WRAPPER = once_differentiable(lambda ctx: None).__code__
#: PyTorch has only this level. Compiled graphs enter it without setting PyTorch's Python variable.
_LEVEL = 0


def kernel(operator: Operator) -> Callable[..., object]:
    """Return the kernel for the Autograd key; its first argument is the keyset."""
    overload = operator.overload
    slow = late(lambda: derivative_kernel(operator))

    def autograd(keyset: object, *args: object, **kwargs: object) -> object:
        if needs_derivative(args, kwargs):
            return slow(keyset, *args, **kwargs)
        with below_autograd():
            return overload.redispatch(keyset & after_autograd, *args, **kwargs)

    return autograd


def derivative_kernel(operator: Operator) -> Callable[..., object]:
    """Return the kernel for calls that are known to need a derivative or to carry tangents."""
    from opsmith.operators.dispatch.ranks.sharding import call_on_parts, takes_dtensors

    overload, signature = operator.overload, operator.signature
    nodes = _Nodes(operator)

    def derivative(keyset: Untyped, *args: object, **kwargs: object) -> object:
        if takes_dtensors(operator, args, kwargs):
            # Each rank differentiates the call on its own parts, in whichever way the operator has.
            return call_on_parts(operator, args, kwargs)
        if in_transform() or keyset.has(ZERO_TENSOR):  # wrappers of transforms hide the key
            args, kwargs = _with_memory(args, kwargs)
        if signature.nondifferentiable:
            args, kwargs = _detached(operator, args, kwargs)
        dual = None
        if may_have_tangents() and has_tangent((*args, *kwargs.values())):
            dual = _reference_of(operator, args, kwargs)
        if not (torch.is_grad_enabled() and any_requires_grad(*args, *kwargs.values())):
            with below_autograd():
                returned = overload.redispatch(keyset & after_autograd, *args, **kwargs)
            return returned if dual is None else _with_tangents(signature, returned, dual())
        if signature.mutated:
            require_recordable(operator, operator.arguments(args, kwargs))
        return nodes.apply(keyset, args, kwargs, dual)

    return derivative


def _with_memory(args: Args, kwargs: Arguments) -> tuple[Value, Value]:
    """Allocate PyTorch's zero tensors without storage, on which some of its operators crash."""
    if not any(_has_no_storage(value) for value in (*args, *kwargs.values())):
        return args, kwargs

    def filled(value: Tensor) -> Tensor:
        return value.clone() if is_zero_tensor(unwrapped(value)) else value

    given = tuple(map_tensors(value, filled) for value in args)
    return given, {name: map_tensors(value, filled) for name, value in kwargs.items()}


def _has_no_storage(value: object) -> bool:
    """Return whether an argument is, or holds, a zero tensor of PyTorch's."""
    if isinstance(value, Tensor):
        return is_zero_tensor(unwrapped(value))
    return isinstance(value, MANY) and any(map(_has_no_storage, value))


def _detached(operator: Operator, args: Args, kwargs: Arguments) -> tuple[Value, Value]:
    """Return a call's arguments with the tensors detached that are declared `NonDifferentiable`."""
    arguments = operator.arguments(args, kwargs)
    for name in operator.signature.nondifferentiable:
        arguments[name] = map_tensors(arguments[name], lambda tensor: tensor.detach())
    return operator.split(arguments)


class _Nodes:
    """A factory for the autograd nodes of one operator's calls."""

    def __init__(self, operator: Operator) -> None:
        self.operator = operator
        self.positional = [p.name for p in operator.signature.parameters if not p.keyword_only]
        self.tensors = [parameter.name for parameter in operator.signature.tensors]
        # If so, and none is absent, autograd has a call's tensors in the order of its arguments.
        self.only_tensors = all(p.is_tensor for p in operator.signature.parameters)
        self.mutated = [parameter.name for parameter in operator.signature.mutated]
        results = operator.signature.results
        self.any_without_gradient = not all(result.differentiable for result in results)
        self.function = type(
            f"{operator.signature.namespace}_{operator.signature.name}",
            (SingleLevelFunction,),
            {
                "forward": staticmethod(self.forward),
                "backward": staticmethod(self.backward),
                "jvp": staticmethod(self.jvp),
            },
        )

    def apply(
        self, keyset: object, args: Args, kwargs: Arguments, dual: Callable[[], object] | None
    ) -> object:
        flat = Flat(self.operator.arguments(args, kwargs), self.tensors)
        call = RecordedCall(flat, keyset, dual)
        function: Value = self.function
        if self.mutated:
            kept = call.begin_write(self.mutated, self.operator.rule.backward is None)
            return call.structure(call.results_of(function.apply(call, *call.flat.tensors, *kept)))
        if in_transform():
            with single_level():
                returned = function.apply(call, *call.flat.tensors)
        else:
            returned = function.apply(call, *call.flat.tensors)
        return call.structure(returned)

    def forward(self, ctx: object, call: RecordedCall, *tensors: Tensor) -> object:
        # Autograd calls this as under `torch.no_grad`. A trace would not let gradients reach what
        # is written so, and the transforms of `torch.func` around this one would record nothing.
        if self.mutated or in_transform():
            with recording():
                return self._call(ctx, call, tensors)
        return self._call(ctx, call, tensors)

    def _call(self, ctx: Context, call: RecordedCall, tensors: Sequence[Tensor]) -> object:
        operator = self.operator
        with below_autograd():
            positional: Args = tuple(call.flat.arguments.values())
            keywords: dict[str, object] = {}
            if len(positional) > len(self.positional):
                positional, keywords = operator.split(call.flat.arguments)
            keyset = call.keyset & after_autograd
            output = operator.overload.redispatch(keyset, *positional, **keywords)
            ctx._opsmith_call = call
            rule = operator.rule
            if rule.backward is not None:
                needs = ctx.needs_input_grad[1 : 1 + call.flat.count]
                ctx.needs_input_grad = self._by_argument(call, needs)
                if rule.setup_context is not None:
                    inputs: dict[str, object] = {"inputs": positional, "output": output}
                    if keywords:
                        inputs["keyword_only_inputs"] = keywords
                    rule.setup_context(ctx, **inputs)
            elif rule.reference:
                ctx.save_for_backward(*call.before(tensors))
        # ctx saves the tensors that backward needs; the node must not keep the others alive.
        call.flat.release()
        if self.any_without_gradient:
            ctx.mark_non_differentiable(*self._without_gradient(output))
        if not self.mutated:
            return call.flatten(output)
        dirty = [tensors[position] for position in call.dirty]
        ctx.mark_dirty(*dirty)
        return call.flatten_with(output, dirty)

    def jvp(self, ctx: Context, *tangents: object) -> object:
        call = ctx._opsmith_call
        dual, call.dual = call.dual, None  # it keeps the arguments alive
        with recording():
            return _flat_tangents(self.operator.signature, dual())

    def _without_gradient(self, output: Value) -> list[Tensor]:
        """Return the tensors among the results that are declared `NonDifferentiable`."""
        results = self.operator.signature.results
        many = output if len(results) > 1 else [output] * len(results)
        return [
            tensor
            for result, value in zip(results, many, strict=True)
            if not result.differentiable
            for tensor in (value if isinstance(value, list | tuple) else [value])
        ]

    def backward(self, ctx: Context, *grads: Tensor) -> object:
        operator, call = self.operator, ctx._opsmith_call
        rule = operator.rule
        if rule.backward is not None:
            return (None, *self._by_hand(ctx, call, grads))
        if rule.reference:
            return (None, *by_reference(operator, call, ctx.saved_tensors, grads, ctx))
        raise DifferentiationError(
            f"{operator.name}: has no gradient, but backward() reached it. Register one with "
            f"{operator.signature.name}.register_autograd(backward, setup_context=...), or, if its "
            'reference is differentiable PyTorch, declare it with autograd="reference".'
        )

    def _by_hand(self, ctx: object, call: RecordedCall, grads: Sequence[Tensor]) -> list[object]:
        operator = self.operator
        assert operator.rule.backward is not None
        structured = call.structured_grads(grads[: call.count] if self.mutated else grads)
        written = call.written_grads(self.mutated, grads[call.count :]) if self.mutated else ()
        returned = operator.rule.backward(ctx, *structured, *written)
        if in_transform() and getattr(operator.rule.backward, "__code__", None) is _WRAPPER:
            returned = _refuse_again(operator.name, returned, ctx, grads)
        if not isinstance(returned, tuple):
            returned = (returned,)
        if len(returned) != len(self.positional):
            raise DifferentiationError(
                f"{operator.name}: its backward returned {len(returned)} gradients, expected "
                f"{len(self.positional)}, one for each of {', '.join(self.positional)} "
                "(None where there is no gradient)."
            )
        found: list[object] = [None] * call.flat.count  # no copies are passed with such a backward
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

    def _by_argument(self, call: RecordedCall, needs: Sequence[bool]) -> tuple[object, ...]:
        """Return whether each argument needs a gradient, in torch.library's order."""
        if call.flat.count == len(self.positional) and self.only_tensors:
            return tuple(needs)
        order = [call.flat.places.get(name) for name in self.positional]
        return tuple([at(needs, place) if place is not None else False for place in order])


def increment_versions(operator: Operator) -> Callable[..., object]:
    """Return the ADInplaceOrView kernel of a mutating operator, which raises version counters.

    Autograd compares these counters to detect that a saved tensor was overwritten.
    """
    overload = operator.overload
    names = [parameter.name for parameter in operator.signature.mutated]
    after = after_versions

    def kernel(keyset: object, *args: object, **kwargs: object) -> object:
        arguments = operator.arguments(args, kwargs)
        with below_versions():
            returned = overload.redispatch(keyset & after, *args, **kwargs)
        torch.autograd.graph.increment_version(
            [tensor for name in names for tensor in each_tensor(arguments[name])]
        )
        return returned

    return kernel


def _refuse_again(name: str, returned: object, ctx: Context, grads: Sequence[Tensor]) -> object:
    """Return the gradients of a decorated backward, so that differentiating them again raises.

    The decorator itself raises in plain autograd only. The levels around a transform take its
    ``torch.no_grad`` for the user's, and would silently find zeros.
    """
    given = [*ctx.saved_tensors, *grads, *vars(ctx).values()]
    tensors = [value for value in given if isinstance(value, Tensor)]

    def refuse(value: object) -> object:
        if isinstance(value, list | tuple):
            return type(value)(map(refuse, value))
        return _Refusing.apply(name, value, *tensors) if isinstance(value, Tensor) else value

    return refuse(returned)


class _Refusing(torch.autograd.Function):
    """The identity on a gradient, which every level of `torch.func` records and refuses."""

    generate_vmap_rule = True

    @staticmethod
    def forward(name: str, gradient: Tensor, *given: Tensor) -> Tensor:
        return gradient.clone()

    @staticmethod
    def setup_context(ctx: Context, inputs: Value, output: Tensor) -> None:
        ctx.name = inputs[0]

    @staticmethod
    def backward(ctx: Context, *grads: Tensor) -> object:
        raise DifferentiationError(
            f"{ctx.name}: its gradient cannot be differentiated again: its backward is decorated "
            "with once_differentiable. Write the backward with operations that have gradients, or "
            'declare it with autograd="reference".'
        )

    jvp = backward


def has_tangent(values: Sequence[object]) -> bool:
    """Return whether a tensor among `values`, or in a list among them, carries a tangent."""
    for value in values:
        if isinstance(value, Tensor):
            if forward_ad.unpack_dual(value, level=_LEVEL).tangent is not None:
                return True
        elif isinstance(value, list | tuple) and has_tangent(value):
            return True
    return False


def _reference_of(operator: Operator, args: Args, kwargs: Arguments) -> Callable[[], object]:
    """Return a function that calls the reference with a call's arguments, which carry tangents.

    The function is for after the call, which validates the arguments; the reference does not.
    """
    if operator.signature.mutated:
        raise DifferentiationError(
            f"{operator.name}: writes into {written_names(operator)}, and such an operator has no "
            "forward-mode derivative, but an argument carries a tangent (jvp, jacfwd, hessian). "
            f"{functional_form(operator.signature)}"
        )
    if not operator.rule.reference:
        raise DifferentiationError(
            f"{operator.name}: has no forward-mode derivative (jvp, jacfwd, hessian). If its "
            'reference is differentiable PyTorch, declare it with autograd="reference"; a '
            "backward registered by hand is still used for reverse mode."
        )
    arguments = operator.arguments(args, kwargs)
    return lambda: operator.reference(**arguments)


def _with_tangents(signature: Signature, returned: Value, dual: object) -> object:
    """Return an operator's results with the tangents of `dual`, its reference's results."""
    tangents = iter(_flat_tangents(signature, dual))

    def add(tensor: Tensor) -> Tensor:
        tangent = next(tangents)
        return tensor if tangent is None else forward_ad.make_dual(tensor, tangent, level=_LEVEL)

    if len(signature.results) == 1:
        return map_tensors(returned, add)
    return tuple(map_tensors(value, add) for value in returned)


def _flat_tangents(signature: Signature, dual: Value) -> tuple[Tensor | None, ...]:
    """Return the tangent of each tensor among a reference's results, of lists too.

    Without an argument on which it depends, a tangent is zero. Integers have none, and results that
    are declared `NonDifferentiable`.
    """
    many = dual if len(signature.results) > 1 else (dual,)
    return tuple(
        _tangent(tensor) if result.differentiable and is_recorded(tensor) else None
        for result, value in zip(signature.results, many, strict=True)
        for tensor in (value if isinstance(value, list | tuple) else (value,))
    )


def _tangent(dual: Tensor) -> Tensor:
    primal, tangent = forward_ad.unpack_dual(dual, level=_LEVEL)
    return torch.zeros_like(primal) if tangent is None else tangent
