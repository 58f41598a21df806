"""The out variant where no compiled kernel writes into given memory: call the operator, and copy.

PyTorch decomposes it in traces, so that graphs contain the operator and a copy: whatever compiles
or exports the operator does so with the out variant, too.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from opsmith.compat.torch_autograd import may_have_tangents
from opsmith.compat.torch_dispatch import is_watched, key_set, passing_over
from opsmith.compat.torch_ops import OpOverload
from opsmith.errors import DifferentiationError
from opsmith.operators.core.arguments import describe, every_tensor_in
from opsmith.operators.core.overlap import keep_apart, refuse_overlap
from opsmith.operators.dispatch.autocast import autocast_keys
from opsmith.operators.dispatch.autograd import has_tangent
from opsmith.operators.dispatch.fake import as_returned, check_size
from opsmith.signature import Signature, bind
from opsmith.signature.calls import named
from opsmith.untyped import Value


def copying_kernel(signature: Signature, overload: OpOverload) -> Callable[..., object]:
    """Return the function that calls an operator, and copies its results into given tensors.

    The function raises `ArgumentError` if a tensor does not fit its result or its elements share
    memory, and `DifferentiationError` where PyTorch's own out variants refuse to be recorded.
    """
    whole, names = signature.writing, [result.name for result in signature.results]
    arguments_of, apart = named(whole), keep_apart(whole)
    # A compiled kernel takes its arguments as they are, so nothing is cast here either.
    autocast = key_set(*autocast_keys())

    def run(*args: object, **kwargs: Value) -> object:
        arguments = arguments_of(args, kwargs)
        for name, tensor in every_tensor_in(arguments):
            grad = torch.is_grad_enabled() and tensor.requires_grad
            if grad or (may_have_tangents() and has_tangent([tensor])):
                raise DifferentiationError(
                    f"{signature.qualname}: a call with out= has no derivative, but argument "
                    f"{name!r} {'requires a gradient' if grad else 'carries a tangent'}. Call the "
                    "operator without out=, or under torch.no_grad()."
                )
        bind(whole, describe(arguments, whole), check_size)
        given: list[Tensor] = [kwargs.pop(name) for name in names]
        if not is_watched() and all(type(t) is Tensor and not t.is_meta for t in given):
            for name in names:
                refuse_overlap(whole, name, arguments[name])
            apart(arguments)
        with passing_over(autocast):
            returned: Value = overload(*args, **kwargs)
        for tensor, result in zip(given, returned if len(given) > 1 else [returned], strict=True):
            tensor.copy_(result)
        return as_returned(given)

    return run
