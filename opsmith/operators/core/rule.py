"""How an operator is differentiated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Rule:
    """How an operator is differentiated.

    Attributes:
        backward: ``backward(ctx, *grads)`` written by hand, in ``torch.library``'s contract.
        setup_context: ``setup_context(ctx, inputs, output)``, ditto.
        reference: whether the reference gives the derivatives that `backward` does not.
    """

    backward: Callable[..., Any] | None = None
    setup_context: Callable[..., Any] | None = None
    reference: bool = False
