"""Call an operator's reference without the dispatcher."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from contextvars import ContextVar
from typing import Any

from torch import Tensor

from opsmith.operators import Operator
from opsmith.operators.core.arguments import flatten, map_tensors, with_own_lists

#: Called after each evaluation of a reference. Right results and their tolerances take many, which
#: together may take longer than a call of a kernel may.
after_evaluation: ContextVar[Callable[[], None]] = ContextVar(
    "after_evaluation", default=lambda: None
)


class _Spent:
    """The seconds that this process has spent in references."""

    seconds = 0.0


spent = _Spent()


def run_reference(operator: Operator, arguments: Mapping[str, Any]) -> tuple[Any, list[Tensor]]:
    """Call the reference directly, without the dispatcher.

    Args:
        arguments: the arguments by name; lists and mutated tensors are copied first.

    Returns:
        The returned value, and the results as a flat list.
    """
    signature = operator.signature
    own = with_own_lists(arguments)
    for parameter in signature.mutated:
        own[parameter.name] = map_tensors(own[parameter.name], Tensor.clone)
    positional, keywords = operator.split(own)
    started = time.monotonic()
    try:
        returned = operator.reference(*positional, **keywords)
    finally:
        spent.seconds += time.monotonic() - started
    after_evaluation.get()()
    return returned, flatten(signature, returned, own)
