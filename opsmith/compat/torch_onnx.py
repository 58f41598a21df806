"""torch.onnx: the registrations of its exporters, and how functions that make nodes read arguments.

Every name exists in each release from 2.10 on. Functions that run in a call of an operator do not
import torch.onnx: code that registered something with it, or is exporting, has imported it. The
values of TorchScript's graphs, of which nodes are made, have their types in ``torch._C``.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Literal

import torch

from opsmith.untyped import Untyped

#: Private: ``torch.onnx._internal.torchscript_exporter.registration``. See `registered_symbolics`.
_REGISTRATION = "torch.onnx._internal.torchscript_exporter.registration"
#: Private: ``torch.onnx._internal.torchscript_exporter._globals``. See `in_torchscript_export`.
_GLOBALS = "torch.onnx._internal.torchscript_exporter._globals"


def registered_symbolics(name: str) -> dict[int, Callable[..., object]]:
    """Return the functions given to ``torch.onnx.register_custom_op_symbolic``, by opset.

    Private: ``torch.onnx._internal.torchscript_exporter.registration.registry``, whose groups store
    in ``_functions._overrides`` the functions that users registered besides PyTorch's own. Without
    it, such a registration is ignored once the operator is adopted.
    """
    registration = sys.modules.get(_REGISTRATION)
    group = registration.registry.get_function_group(name) if registration else None
    return {} if group is None else dict(group._functions._overrides)


@contextmanager
def symbolics_registered(functions: Mapping[tuple[str, int], Untyped]) -> Iterator[None]:
    """Register functions that make nodes for a block, and restore the earlier ones afterwards.

    Private: ``torch.onnx._internal.torchscript_exporter.registration.registry._registry``, from
    which groups without functions are removed, because the exporter fails at a node with the name
    of such a group.

    Args:
        functions: each function by the operator's name and an opset.
    """
    before = {key: registered_symbolics(key[0]).get(key[1]) for key in functions}
    try:
        for (name, opset), function in functions.items():
            torch.onnx.register_custom_op_symbolic(name, function, opset)
        yield
    finally:
        registry = sys.modules[_REGISTRATION].registry
        for (name, opset), earlier in before.items():
            torch.onnx.unregister_custom_op_symbolic(name, opset)
            if earlier is not None:
                torch.onnx.register_custom_op_symbolic(name, earlier, opset)
            group = registry.get_function_group(name)
            if group is not None and not group._functions:
                del registry._registry[name]


def in_torchscript_export() -> bool:
    """Return whether the TorchScript exporter is running.

    Private: ``torch.onnx._internal.torchscript_exporter._globals.GLOBALS``. The public
    ``torch.onnx.is_in_onnx_export`` does not tell which exporter is running.
    """
    found = sys.modules.get(_GLOBALS)
    return found is not None and bool(found.GLOBALS.in_onnx_export)


def exports_by_torchscript(name: str, opset: int) -> bool:
    """Return whether the TorchScript exporter has a translation of an operator.

    Private: ``torch.onnx._internal.torchscript_exporter.registration.registry``. Without it, the
    exporter itself refuses operators without one, in its own words.
    """
    try:
        from torch.onnx._internal.torchscript_exporter import registration
    except ImportError:
        return True
    return bool(registration.registry.is_registered_op(name, opset))


def exports_by_dynamo(overload: Untyped) -> bool:
    """Return whether the exporter that torch.onnx uses now has a translation of an operator.

    Private: ``torch.onnx._internal.exporter._registration.ONNXRegistry``. Without it, the exporter
    itself refuses operators that have no translation, with its own message.
    """
    try:
        from torch.onnx._internal.exporter._registration import ONNXRegistry

        return bool(ONNXRegistry.from_torchlib().is_registered(overload))
    except (ImportError, AttributeError):
        return True


def constant(value: object, kind: str, name: str) -> Untyped:
    """Return the number that an argument of a node's function stands for.

    Private: ``torch.onnx.symbolic_helper._get_const``. Without it, opsmith's translations for the
    TorchScript exporter cannot read numbers.

    Args:
        kind: ``"i"``, ``"f"`` or ``"b"``.
        name: the argument's name, for the exporter's messages.
    """
    from torch.onnx import symbolic_helper

    return symbolic_helper._get_const(value, kind, name)


def parsed(value: object, kind: Literal["b", "f"]) -> object:
    """Return an argument as a Python value, as ``@parse_args`` does.

    Private: ``torch.onnx.symbolic_helper._parse_arg``. Without it, opsmith cannot refuse the modes
    of ``index_put`` and ``cdist`` that the TorchScript exporter gets wrong.
    """
    from torch.onnx import symbolic_helper

    return symbolic_helper._parse_arg(value, kind)


def is_float(value: object) -> bool:
    """Return whether a value is a tensor of floats.

    Private: ``torch.onnx.symbolic_helper._is_fp``. Without it, ``floor_divide`` is not
    exported by TorchScript.
    """
    from torch.onnx import symbolic_helper

    return bool(symbolic_helper._is_fp(value))


def is_absent(value: object) -> bool:
    """Return whether an argument is absent.

    Private: ``torch.onnx.symbolic_helper._is_none``. Without it,
    ``binary_cross_entropy_with_logits`` is not exported by TorchScript.
    """
    from torch.onnx import symbolic_helper

    return bool(symbolic_helper._is_none(value))


def summed(graph: Untyped, value: object, axis: int, *, kept: bool) -> object:
    """Make the node of a sum along one dimension, which opsets write in two ways.

    Private: ``torch.onnx.symbolic_helper._reducesum_helper``. Without it,
    ``pairwise_distance`` and ``cosine_similarity`` are not exported by TorchScript.
    """
    from torch.onnx import symbolic_helper

    return symbolic_helper._reducesum_helper(graph, value, axes_i=[axis], keepdims_i=int(kept))


#: Private: ``torch._C.Value``. Distinguishes a value of the graph that TorchScript exports from a
#: number, and would be the annotation of such arguments.
GraphValue: Untyped = torch._C.Value


def dtype_of(value: Untyped) -> torch.dtype | None:
    """Return the dtype that a graph records of a value; `None` if it records none.

    Private: ``torch._C.TensorType``. Without it, exports by TorchScript do not know dtypes.
    """
    type_ = None if value is None else value.type()
    return type_.dtype() if isinstance(type_, torch._C.TensorType) else None


def sizes_of(value: Untyped) -> list[int | None] | None:
    """Return the sizes that a graph records of a value, if any; `None` for each that varies.

    Private: ``torch._C.TensorType``. Without it, exports by TorchScript do not know shapes.
    """
    type_ = None if value is None else value.type()
    found = type_.varyingSizes() if isinstance(type_, torch._C.TensorType) else None
    return None if found is None else list(found)


def record(value: Untyped, dtype: torch.dtype, sizes: Untyped) -> None:
    """Have a graph record a tensor's dtype, and its sizes unless they are `None`.

    Private: ``torch._C.TensorType.get``. Without it, the outputs of an exported model have no type.
    """
    type_ = torch._C.TensorType.get().with_dtype(dtype)
    value.setType(type_ if sizes is None else type_.with_sizes(sizes))


def absent(graph: Untyped) -> object:
    """Make the value of an absent argument.

    Private: ``torch._C.NoneType.get``. Without it, TorchScript exports no optional inputs.
    """
    made = graph.op("prim::Constant")
    made.setType(torch._C.NoneType.get())
    return made
