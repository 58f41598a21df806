"""Choose the ONNX translation of an operator for an export."""

from __future__ import annotations

from opsmith.compat.torch_onnx import registered_symbolics
from opsmith.compat.torch_ops import overload_schema
from opsmith.errors import ExportError
from opsmith.operators.core.onnx_translation import OnnxTranslation
from opsmith.operators.core.operator import Operator
from opsmith.operators.core.source_location import where_written


def translations(operator: Operator) -> list[OnnxTranslation]:
    """Return the translations registered with torch.onnx, then those registered with opsmith."""
    return [*_of_torch(operator), *operator.onnx_translations]


_REGISTERED = "torch.onnx.register_custom_op_symbolic"


def _of_torch(operator: Operator) -> list[OnnxTranslation]:
    return [
        OnnxTranslation(
            function, opset, symbolic=True, where=where_written(function), note=_REGISTERED
        )
        for opset, function in registered_symbolics(overload_schema(operator.overload).name).items()
    ]


def latest(operator: Operator, opset: int) -> OnnxTranslation | None:
    """Return the translation for an export to `opset`: the latest whose opset is not above it.

    Translations registered with torch.onnx have priority, as they do in torch.onnx itself.
    """
    for known in (_of_torch(operator), operator.onnx_translations):
        usable = [one for one in known if one.opset <= opset]
        if usable:
            return max(usable, key=lambda one: one.opset)
    return None


def translation_of(operator: Operator, opset: int) -> OnnxTranslation:
    """Return the translation of an operator for `opset`, as `latest` does, or fail.

    Raises:
        ExportError: the operator has no translation, or no translation for this opset.
    """
    known = translations(operator)
    if not known:
        raise ExportError(
            f"{operator.name}: does not say how standard ONNX operators compute it; declare this "
            f"by {operator.signature.name}.register_onnx"
        )
    best = latest(operator, opset)
    if best is None:
        first = min(one.opset for one in known)
        raise ExportError(
            f"{operator.name}: its standard form needs opset {first}, and the export is of "
            f"opset {opset}. Pass opset={first} or higher."
        )
    return best
