"""Call an operator's reference without the dispatcher."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from torch import Tensor

from opsmith.operators import Operator
from opsmith.operators.core.arguments import flatten, map_tensors, with_own_lists


def run_reference(operator: Operator, arguments: Mapping[str, Any]) -> tuple[Any, list[Tensor]]:
    """Call the reference directly, without the dispatcher.

    Args:
        operator: the operator.
        arguments: the arguments by name; lists and mutated tensors are copied first.

    Returns:
        The returned value, and the results as a flat list.
    """
    signature = operator.signature
    own = with_own_lists(arguments)
    for parameter in signature.mutated:
        own[parameter.name] = map_tensors(own[parameter.name], Tensor.clone)
    positional, keywords = operator.split(own)
    returned = operator.reference(*positional, **keywords)
    return returned, flatten(signature, returned, own)
