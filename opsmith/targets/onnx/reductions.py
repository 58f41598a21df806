"""Replace ScatterND where it sums over repeated indices, which ONNX Runtime gets wrong.

ONNX Runtime's ScatterND distributes the indices over threads. With a reduction, two threads that
update the same element sometimes lose one of the updates (microsoft/onnxruntime issues 18048,
23396). ScatterElements processes the indices one after the other: slower, and right.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from opsmith.errors import ExportError

_END = 2**62


def make_reductions_sound(model: Any) -> None:
    """Replace every ScatterND with a reduction.

    Args:
        model: the ``onnx_ir.Model``; it is changed.

    Raises:
        ExportError: the exporter did not record the shape of the indices.
    """
    import onnx_ir

    for node in list(model.graph.all_nodes()):
        if node.op_type != "ScatterND" or node.domain not in ("", "ai.onnx"):
            continue
        reduction = node.attributes.get_string("reduction", "none")
        if reduction == "none":
            continue
        nodes: list[Any] = []
        result = _ScatterElements(nodes).build(node.inputs, reduction)
        old = node.outputs[0]
        result.dtype, result.shape = old.dtype, old.shape
        onnx_ir.convenience.replace_nodes_and_values(
            node.graph, node, [node], nodes, [old], [result]
        )


class _ScatterElements:
    """Appends the nodes that replace one ScatterND to `nodes`."""

    def __init__(self, nodes: list[Any]) -> None:
        self.nodes = nodes

    def build(self, inputs: Sequence[Any], reduction: str) -> Any:
        """Return the value that ScatterND of `inputs` computes."""
        data, indices, updates = inputs
        if indices.shape is None or not isinstance(indices.shape[-1], int):
            raise ExportError(
                "a sum over repeated indices (index_add, index_put, scatter_add) has indices of "
                'unknown shape. Export with exporter="dynamo", or use the library form.'
            )
        depth = indices.shape[-1]
        how = {"axis": 0, "reduction": reduction}
        if depth == 1 and len(indices.shape) == 2 and len(data.shape or ()) == 2:
            index = self._node("Expand", indices, self._node("Shape", updates))
            return self._node("ScatterElements", data, index, updates, **how)
        # Flatten the indexed dimensions into one.
        shape = self._node("Shape", data)
        lead, rest = self._part(shape, 0, depth), self._part(shape, depth, _END)
        rows = self._linear(indices, lead, depth)
        count = self._part(self._node("Shape", rows), 0, 1)
        flat = self._reshape(data, self._node("ReduceProd", lead, keepdims=1), rest)
        taken = self._reshape(updates, count, rest)
        ones = self._node("Expand", self._numbers(1), self._node("Shape", rest))
        index = self._node("Expand", self._reshape(rows, count, ones), self._node("Shape", taken))
        scattered = self._node("ScatterElements", flat, index, taken, **how)
        return self._node("Reshape", scattered, shape, allowzero=1)

    def _linear(self, indices: Any, lead: Any, depth: int) -> Any:
        """Return each index as one number, with shape (n, 1)."""
        table = self._node("Reshape", indices, self._numbers(-1, depth))
        negative = self._node("Less", table, self._numbers(0))
        table = self._node("Where", negative, self._node("Add", table, lead), table)
        rows = self._node("Gather", table, self._numbers(0), axis=1)
        for axis in range(1, depth):
            size = self._part(lead, axis, axis + 1)
            column = self._node("Gather", table, self._numbers(axis), axis=1)
            rows = self._node("Add", self._node("Mul", rows, size), column)
        return rows

    def _reshape(self, value: Any, first: Any, rest: Any) -> Any:
        return self._node("Reshape", value, self._node("Concat", first, rest, axis=0), allowzero=1)

    def _part(self, sizes: Any, start: int, end: int) -> Any:
        return self._node("Slice", sizes, self._numbers(start), self._numbers(end))

    def _numbers(self, *values: int) -> Any:
        return self._node("Constant", value_ints=list(values))

    def _node(self, op_type: str, *inputs: Any, **attributes: Any) -> Any:
        import onnx_ir

        node = onnx_ir.node(op_type, list(inputs), attributes)
        self.nodes.append(node)
        return node.outputs[0]
