"""The rule by which an operator is differentiated."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass

from opsmith.errors import DeclarationError
from opsmith.operators.core.source_location import where_written
from opsmith.signature import Signature
from opsmith.untyped import Value


@dataclass(frozen=True)
class Rule:
    """The rule by which an operator is differentiated.

    Attributes:
        backward: a hand-written ``backward(ctx, *grads)``, as ``torch.library`` defines it.
        setup_context: a hand-written ``setup_context(ctx, inputs, output)``, as ``torch.library``
            defines it.
        reference: whether to differentiate the reference where `backward` gives no derivative.
    """

    backward: Callable[..., Value] | None = None
    setup_context: Callable[..., Value] | None = None
    reference: bool = False


def require_gradient_arguments(signature: Signature, backward: Callable[..., object]) -> None:
    """Refuse a ``backward`` that cannot be called with the context and every gradient.

    Each result has a gradient, and so have the new contents of each argument that is written into.

    Raises:
        DeclarationError: it takes more arguments, or fewer.
    """
    results = [result.name for result in signature.results]
    results += [parameter.name for parameter in signature.mutated]
    try:
        inspect.signature(backward).bind(None, *results)
    except ValueError:
        return  # a function of C++ does not say what it takes
    except TypeError as error:
        raise DeclarationError(
            f"{signature.qualname}: register_autograd: {where_written(backward)}: the backward is "
            f"called with the context and a gradient for each of {len(results)} "
            f"{'results' if not signature.mutated else 'results and written arguments'} "
            f"({', '.join(results)}), but it does not take these: {error}. Write "
            f"backward(ctx, {', '.join(f'grad_{name}' for name in results)})."
        ) from None
