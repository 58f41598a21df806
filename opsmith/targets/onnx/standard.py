"""Write the standard form of an operator for the current exporter of torch.onnx.

Installed packages carry a copy of the modules of opsmith that this module imports.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from opsmith.operators import Operator
from opsmith.operators.core.onnx_translation import OnnxTranslation
from opsmith.targets.onnx.emitter import Attributes, Emitter, translate
from opsmith.targets.onnx.node import ELEMENT_TYPES


class DynamoEmitter(Emitter):
    """Writes nodes into the graph that torch.onnx is building."""

    def _emit(
        self, domain: str, op_type: str, inputs: list[Any], attributes: Attributes, outputs: int
    ) -> Sequence[Any]:
        return add_node(domain, op_type, inputs, attributes, outputs, None)

    def _dtype_of(self, value: Any) -> str | None:
        numbers = {number: name for name, number in ELEMENT_TYPES.items()}
        return None if value.dtype is None else numbers.get(int(value.dtype))

    def _shape_of(self, value: Any) -> list[int | None] | None:
        if value.shape is None:
            return None
        return [size if isinstance(size, int) else None for size in value.shape]

    def _is_value(self, value: Any) -> bool:
        import onnx_ir

        return isinstance(value, onnx_ir.Value)


def add_node(
    domain: str,
    op_type: str,
    inputs: Sequence[Any],
    attributes: Attributes,
    outputs: int,
    version: int | None,
) -> Sequence[Any]:
    """Add a node to the graph that torch.onnx is building, and return its outputs."""
    import onnx_ir
    from onnxscript import evaluator

    def attribute(name: str, kind: str, value: Any) -> Any:
        if kind == "TENSOR":
            value = onnx_ir.tensor(value)
        return onnx_ir.Attr(name, onnx_ir.AttributeType[kind], value)

    node = onnx_ir.Node(
        domain,
        op_type,
        list(inputs),
        [attribute(*item) for item in attributes],
        num_outputs=outputs,
        version=version,
    )
    # While the exporter translates, its recorder is onnxscript's default evaluator.
    recorder: Any = evaluator.default()
    recorder.nodes.append(node)
    return node.outputs


def standard(operator: Operator, translation: OnnxTranslation, opset: int) -> Callable[..., Any]:
    """Return the function for one operator in torch.onnx's ``custom_translation_table``."""

    def run(*args: Any, **kwargs: Any) -> Any:
        emitter = DynamoEmitter(operator, opset)
        values = translate(translation, emitter, operator, operator.arguments(args, kwargs))
        # The exporter renames the returned values, so an input must not be returned itself.
        values = tuple(
            emitter.node("Identity", value) if value.producer() is None else value
            for value in values
        )
        return values[0] if len(values) == 1 else values

    return run
