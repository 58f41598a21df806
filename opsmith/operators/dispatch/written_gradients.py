"""Gradients of calls that write into arguments.

Autograd records such a call as it records an in-place function: the node returns the results and
the tensors that were written, marked as dirty. Each later use of these reaches the node.

PyTorch leaves out what `require_recordable` refuses. The message then gives the functional form.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from torch import Tensor

from opsmith.compat.torch_autograd import in_transform, is_view
from opsmith.errors import DifferentiationError
from opsmith.operators.core.arguments import every_tensor_in, is_float8
from opsmith.signature import Signature

if TYPE_CHECKING:
    from opsmith.operators.core.operator import Operator


def is_recorded(tensor: Tensor) -> bool:
    """Return whether a gradient can come to the new contents of a written tensor."""
    return (tensor.is_floating_point() or tensor.is_complex()) and not is_float8(tensor.dtype)


def written_names(operator: Operator) -> str:
    """Return the names of the arguments that an operator writes, quoted, for messages."""
    return ", ".join(repr(parameter.name) for parameter in operator.signature.mutated)


def functional_form(signature: Signature) -> str:
    """Return a sentence with the operator that returns the new contents in place of writing."""
    given = ", ".join(parameter.name for parameter in signature.parameters)
    returned = [result.name for result in signature.results]
    returned += [parameter.name for parameter in signature.mutated]
    into = "; ".join(f"{p.name}.copy_(...)" for p in signature.mutated if p.is_tensor)
    after = f", and write afterwards: {into}" if into else ""
    return (
        f"Declare {signature.name}({given}) -> ({', '.join(returned)}), which writes into "
        f"nothing{after}."
    )


def require_recordable(operator: Operator, arguments: Mapping[str, Any]) -> None:
    """Refuse a call whose gradient autograd cannot record.

    Raises:
        DifferentiationError: the message says what to write.
    """
    signature, rule = operator.signature, operator.rule
    begin = f"{operator.name}: writes into {written_names(operator)}, and"
    form = functional_form(signature)
    if rule.backward is None and not rule.reference:
        raise DifferentiationError(
            f"{begin} declares no gradient, but an argument requires one. Call it under "
            "torch.no_grad(), detach() its arguments, or declare its gradient "
            '(autograd="reference", register_backward, register_autograd).'
        )
    if in_transform():
        raise DifferentiationError(f"{begin} torch.func differentiates no such operator. {form}")
    written = {
        name: tensor
        for name, tensor in every_tensor_in({p.name: arguments[p.name] for p in signature.mutated})
        if is_recorded(tensor) and signature.by_name[name.partition("[")[0]].differentiable
    }
    for name, tensor in written.items():
        if tensor.requires_grad and tensor.is_leaf:
            raise DifferentiationError(
                f"{operator.name}: argument {name!r} is written into, and is a leaf that requires "
                "a gradient. Pass a tensor that is computed from it (a clone), or call the "
                "operator under torch.no_grad()."
            )
        if is_view(tensor) and (signature.results or len(written) > 1):
            raise DifferentiationError(
                f"{operator.name}: argument {name!r} is written into, and is a view of another "
                "tensor. Autograd records writes into views only for an operator that writes one "
                f"argument and returns nothing. Pass a tensor of its own (a clone). Or: {form}"
            )
