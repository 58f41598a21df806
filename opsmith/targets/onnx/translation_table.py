"""Provide opsmith's translations to a direct call of ``torch.onnx.export``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from opsmith.errors import ExportError
from opsmith.operators import Operator, all_operators
from opsmith.operators.adoption.adopted import all_adopted
from opsmith.operators.core.onnx_choice import latest, translation_of


def onnx_translations(*operators: Operator, opset: int = 20) -> dict[Any, Callable[..., Any]]:
    """Return a ``custom_translation_table`` for ``torch.onnx.export``.

    It translates the operators as `register_onnx` defines. An installed package has a copy of this
    function in its ``_opsmith``, which works without opsmith.

    Args:
        operators: the operators; by default all declared and adopted operators with a standard
            form.
        opset: the ``opset_version`` of the export.

    Returns:
        For each operator's overload a function that writes its nodes.

    Raises:
        ExportError: one of `operators` has no standard form in that opset, or writes into its
            arguments.

    Example:
        >>> import opsmith
        >>> from jaxtyping import Float
        >>> from torch import Tensor
        >>> @opsmith.op("docs::softplus")
        ... def softplus(x: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
        ...     return torch.nn.functional.softplus(x)
        >>> softplus.register_onnx("Softplus")
        >>> table = opsmith.onnx_translations(softplus, opset=20)
        >>> [overload.name() for overload in table]
        ['docs::softplus']
    """
    from opsmith.targets.onnx.standard import standard

    for operator in operators:
        if operator.signature.mutated:
            raise ExportError(
                f"{operator.name}: writes into {operator.signature.mutated[0].name!r}, and "
                "torch.onnx.export by itself replaces the calls of such operators. Use "
                "opsmith.export."
            )
        translation_of(operator, opset)
    found = {}
    for operator in operators or (*all_operators(), *all_adopted()):
        translation = latest(operator, opset)
        if translation is not None and not operator.signature.mutated:
            found[operator.overload] = standard(operator, translation, opset)
    return found
