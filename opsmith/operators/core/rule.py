"""The rule by which an operator is differentiated."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Rule:
    """The rule by which an operator is differentiated.

    Attributes:
        backward: a hand-written ``backward(ctx, *grads)``, as ``torch.library`` defines it.
        setup_context: a hand-written ``setup_context(ctx, inputs, output)``, as ``torch.library``
            defines it.
        reference: whether to differentiate the reference where `backward` gives no derivative.
    """

    backward: Callable[..., Any] | None = None
    setup_context: Callable[..., Any] | None = None
    reference: bool = False
