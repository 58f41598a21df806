"""Post-process every exported ONNX model before it is written."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from opsmith.errors import ExportError
from opsmith.system.version import version
from opsmith.targets.exporting.model import Model
from opsmith.targets.onnx.node import ELEMENT_TYPES
from opsmith.targets.onnx.reductions import make_reductions_sound

_NAME = re.compile(r"[A-Za-z_]\w*")
_INDEX_TYPES = {"tensor(int64)"}


def finish(model: Any, source: Model, path: Path) -> None:
    """Name dimensions as the user did, correct mistakes of the exporters, and write the file.

    Args:
        model: the ``onnx_ir.Model``; it is changed.
        source: the model that was exported.
        path: the file to write; weights that are too large for it are written beside it.
    """
    import onnx_ir

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
    import onnx_ir

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
    import onnx_ir

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
    import onnx_ir

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
    import onnx
    import onnx_ir

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
