"""Post-process every exported ONNX model before it is written."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import onnx
import onnx_ir

from opsmith.errors import ExportError
from opsmith.system.version import version
from opsmith.targets.exporting.model import Model
from opsmith.targets.onnx.node import ELEMENT_TYPES

_NAME = re.compile(r"[A-Za-z_]\w*")
_INDEX_TYPES = {"tensor(int64)"}


def finish(model: Any, source: Model, path: Path) -> None:
    """Name dimensions as the user did, correct mistakes of the exporters, and write the file.

    Args:
        model: the ``onnx_ir.Model``; it is changed.
        source: the model that was exported.
        path: the file to write; weights that are too large for it are written beside it.
    """
    _refuse_sizes_of_float8(model)
    _restore_inputs(model, source)
    _name_dimensions(model, source.dim_names)
    for value, spec in zip(model.graph.outputs, source.outputs, strict=True):
        value.shape = onnx_ir.Shape(list(spec.shape))
    _widen_indices(model)
    make_reductions_sound(model)
    for node in model.graph.all_nodes():
        # Tracebacks contain paths of the exporting machine, and make up most of the file.
        for key in [key for key in node.metadata_props if key.endswith("stack_trace")]:
            del node.metadata_props[key]
    model.metadata_props["opsmith"] = version()
    large = sum(tensor.nbytes for tensor in _initializers(model)) > 1 << 30
    onnx_ir.save(model, path, external_data=f"{path.name}.data" if large else None)


def _refuse_sizes_of_float8(model: Any) -> None:
    """Refuse a model that reads a size from a float8 tensor, which ONNX Runtime does not load.

    A cast before it does not help: its optimizer takes the cast out again.
    """
    for node in model.graph.all_nodes():
        dtypes = [value.dtype for value in node.inputs if value is not None]
        types = (onnx_ir.DataType.FLOAT8E4M3FN, onnx_ir.DataType.FLOAT8E5M2)
        if node.op_type == "Shape" and node.domain in ("", "ai.onnx") and dtypes[0] in types:
            raise ExportError(
                f"{node.inputs[0].name!r} is float8, and its sizes may change: ONNX Runtime has no "
                "Shape of float8 (none up to 1.31 has). Fix these sizes, or take the form library."
            )


def _restore_inputs(model: Any, source: Model) -> None:
    """Add every input that the manifest lists, including inputs that the graph does not use."""
    known = {value.name: value for value in model.graph.inputs}
    model.graph.inputs.clear()
    for spec in source.inputs:
        type_ = onnx_ir.TensorType(onnx_ir.DataType(ELEMENT_TYPES[spec.dtype]))
        made = onnx_ir.Value(name=spec.name, shape=onnx_ir.Shape(list(spec.shape)), type=type_)
        model.graph.inputs.append(known.get(spec.name, made))


def _initializers(model: Any) -> Iterator[Any]:
    for value in model.graph.initializers.values():
        if value.const_value is not None:
            yield value.const_value


def _values(model: Any) -> Iterator[Any]:
    yield from model.graph.inputs
    yield from model.graph.initializers.values()
    for node in model.graph.all_nodes():
        yield from node.outputs


def _name_dimensions(model: Any, names: Mapping[str, str]) -> None:
    if not names:
        return

    def renamed(size: Any) -> Any:
        text = getattr(size, "value", None)
        if not isinstance(text, str):
            return size
        return onnx_ir.SymbolicDim(_NAME.sub(lambda m: names.get(m[0], m[0]), text))

    for value in _values(model):
        if value.shape is not None:
            value.shape = onnx_ir.Shape([renamed(size) for size in value.shape])


def _widen_indices(model: Any) -> None:
    """Cast indices to int64 where an operator accepts no other type.

    torch.onnx passes int32 indices to ScatterND (for ``index_add``, for example), and ONNX Runtime
    then refuses the model.
    """
    opset = model.graph.opset_imports.get("", 0)
    int32, int64 = onnx_ir.DataType.INT32, onnx_ir.DataType.INT64
    taken = {value.name for value in _values(model)}
    for node in list(model.graph.all_nodes()):
        if node.domain not in ("", "ai.onnx"):
            continue
        try:
            schema = onnx.defs.get_schema(node.op_type, opset)
        except onnx.defs.SchemaError:
            continue
        for position, value in enumerate(node.inputs):
            if value is None or value.dtype != int32 or not schema.inputs:
                continue
            formal = schema.inputs[min(position, len(schema.inputs) - 1)]
            if set(formal.types) != _INDEX_TYPES:
                continue
            cast = onnx_ir.Node("", "Cast", [value], [onnx_ir.AttrInt64("to", int(int64))])
            (wide,) = cast.outputs
            wide.dtype, wide.shape = int64, value.shape
            # Several nodes, or positions of a node, may read a value: each gets a cast of its own.
            wide.name = next(name for name in _numbered(f"{value.name}_int64") if name not in taken)
            taken.add(wide.name)
            node.graph.insert_before(node, cast)
            node.replace_input_with(position, wide)


def _numbered(name: str) -> Iterator[str]:
    yield name
    yield from (f"{name}_{number}" for number in itertools.count(1))


_END = 2**62


def make_reductions_sound(model: Any) -> None:
    """Replace every ScatterND with a reduction, which ONNX Runtime gets wrong.

    It distributes the indices over threads, and two threads that update the same element sometimes
    lose one of the updates (microsoft/onnxruntime issues 18048, 23396). ScatterElements processes
    the indices one after the other: slower, and right.

    Args:
        model: the ``onnx_ir.Model``; it is changed.
    """
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
        node = onnx_ir.node(op_type, list(inputs), attributes)
        self.nodes.append(node)
        return node.outputs[0]
