"""Define the ``op`` of `register_onnx` functions, which writes nodes (``op.Add(x, y)``).

Each exporter derives a class from `Emitter`, so one function serves both exporters.
"""

from __future__ import annotations

import abc
import functools
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from opsmith.errors import ExportError, FormError
from opsmith.operators import Operator
from opsmith.operators.core.arguments import DTYPES, dtype_name
from opsmith.operators.core.onnx_translation import OnnxTranslation
from opsmith.targets.onnx.node import ELEMENT_TYPES

Attributes = list[tuple[str, str, Any]]
"""Name, ONNX's name of the type (``INT``, ``FLOATS``, …) and value of each attribute."""


class Emitter(abc.ABC):
    """Writes nodes of standard ONNX operators.

    ``op.Name(input, …, attribute=value, …)`` makes one node and returns its output, or a tuple with
    ``outputs=2``. Inputs are values, `None` for an absent input, tensors, or numbers. Tensors and
    numbers become constants; numbers get the dtype of the other inputs. For a node of a domain
    other than ONNX's, write ``op.Name(…, domain="custom")``; its attributes have the types of their
    values. ``op.node("domain::Name", …)`` is for names that are not Python identifiers.

    Attributes:
        opset: the opset of the export.
    """

    def __init__(self, operator: Operator, opset: int) -> None:
        self.opset = opset
        self._operator = operator
        self._known: dict[Any, str] = {}
        self._constants: dict[Any, Tensor] = {}

    def __getattr__(self, name: str) -> Callable[..., Any]:
        if name.startswith("_"):
            raise AttributeError(name)
        return functools.partial(self.node, name)

    def node(
        self, name: str, /, *inputs: Any, outputs: int = 1, domain: str = "", **attributes: Any
    ) -> Any:
        """Make one node.

        Args:
            name: ``Name`` or ``domain::Name``.
            inputs: its inputs in order.
            domain: domain of the operator, unless `name` includes it; ONNX's own by default.
            attributes: its attributes; attributes that are `None` are left out.
        """
        named, _, op_type = name.rpartition("::")
        domain = named or domain
        schema = self._schema(domain, op_type)
        typed = self._typed(schema, name, attributes)
        values = [self._value(schema, position, inputs) for position in range(len(inputs))]
        while values and values[-1] is None:
            values.pop()
        made = self._emit(domain, op_type, values, typed, outputs)
        self._remember(schema, values, typed, made)
        return made[0] if outputs == 1 else tuple(made)

    def constant(self, value: Tensor) -> Any:
        """Make a constant."""
        (made,) = self._emit("", "Constant", [], [("value", "TENSOR", value)], 1)
        self._known[_key(made)] = dtype_name(value.dtype)
        self._constants[_key(made)] = value
        return made

    def promoted(self, name: str, inputs: Sequence[Any]) -> list[Any]:
        """Return a node's inputs, cast to common dtypes by PyTorch's rules where ONNX requires it.

        The TorchScript exporter does the same, and ``symbolic`` functions rely on it.
        """
        domain, _, op_type = name.rpartition("::")
        schema = self._schema(domain, op_type)
        values = list(inputs)
        if schema is None or not schema.inputs:
            return values
        groups: dict[str, list[int]] = {}
        for position, value in enumerate(values):
            kind = schema.inputs[min(position, len(schema.inputs) - 1)].type_str
            if value is not None and self._is_value(value) and not kind.startswith("tensor("):
                groups.setdefault(kind, []).append(position)
        for positions in groups.values():
            dtypes = [self._dtype(values[position]) for position in positions]
            if None in dtypes or len(set(dtypes)) < 2:
                continue
            common = self._common_dtype([values[position] for position in positions])
            for position in positions:
                if self._dtype(values[position]) != common:
                    values[position] = self._cast(values[position], common)
        return values

    def _common_dtype(self, values: Sequence[Any]) -> str:
        """Return the common dtype by PyTorch's rule, which ranks numbers and 0-d tensors lower."""
        found = None
        for value in values:
            constant, dtype = self._constants.get(_key(value)), self._dtype(value)
            shape = self._shape_of(value) if constant is None else constant.shape
            assert dtype is not None
            sample = torch.empty(() if shape is not None and len(shape) == 0 else (1,))
            sample = sample.to(DTYPES[dtype])
            if found is None:
                found = sample
            else:
                common = torch.result_type(found, sample)
                found = (found if found.dim() else sample).to(common)
        assert found is not None
        return dtype_name(found.dtype)

    def _cast(self, value: Any, dtype: str) -> Any:
        constant = self._constants.get(_key(value))
        if constant is not None:
            return self.constant(constant.to(DTYPES[dtype]))
        return self.node("Cast", value, to=DTYPES[dtype])

    def _dtype(self, value: Any) -> str | None:
        return self._known.get(_key(value)) or self._dtype_of(value)

    def shape(self, value: Any) -> list[int | None]:
        """Return the sizes of a value; `None` for a size that is known only when the model runs."""
        found = self._shape_of(value)
        if found is None:
            raise FormError(
                self._operator.name,
                "its ONNX form needs the shape of a value that has none recorded",
            )
        return found

    def size(self, value: Any, axis: int) -> int:
        """Return one size of a value, for an attribute of a node."""
        found = self.shape(value)[axis]
        if found is None:
            raise FormError(
                self._operator.name,
                f"its ONNX form has an attribute that follows from dimension {axis} of an "
                "argument, and that size may change. Leave it out of dynamic_shapes, or use the "
                "library form.",
            )
        return found

    @abc.abstractmethod
    def _emit(
        self, domain: str, op_type: str, inputs: list[Any], attributes: Attributes, outputs: int
    ) -> Sequence[Any]:
        """Make the node in the exporter's graph, and return its outputs."""

    @abc.abstractmethod
    def _dtype_of(self, value: Any) -> str | None:
        """Return the dtype of a value of the exporter's graph, if it is known."""

    @abc.abstractmethod
    def _shape_of(self, value: Any) -> list[int | None] | None:
        """Return the sizes of a value of the exporter's graph, if they are known."""

    @abc.abstractmethod
    def _is_value(self, value: Any) -> bool:
        """Return whether `value` belongs to the exporter's graph."""

    def _schema(self, domain: str, op_type: str) -> Any:
        from onnx import defs

        if domain not in ("", "ai.onnx", "ai.onnx.ml"):
            return None
        try:
            return defs.get_schema(op_type, self.opset, domain.replace("ai.onnx", "", 1))
        except defs.SchemaError:
            pass
        try:
            newest = f"; opset {defs.get_schema(op_type).since_version} has it"
        except defs.SchemaError:
            newest = (
                f'. If the node is another domain\'s, say which: op.{op_type}(…, domain="custom")'
            )
        raise FormError(
            self._operator.name,
            f"its ONNX form uses {op_type}, which opset {self.opset} does not have{newest}",
        )

    def _typed(self, schema: Any, name: str, attributes: Mapping[str, Any]) -> Attributes:
        found: Attributes = []
        for key, value in attributes.items():
            if value is None:
                continue
            if schema is not None and key not in schema.attributes:
                known = ", ".join(schema.attributes) or "none"
                raise FormError(
                    self._operator.name, f"{name} of ONNX has no attribute {key!r}; it has {known}"
                )
            kind = _kind(value) if schema is None else schema.attributes[key].type.name
            found.append((key, kind, _converted(kind, value)))
        return found

    def _value(self, schema: Any, position: int, inputs: Sequence[Any]) -> Any:
        value = inputs[position]
        if value is None or self._is_value(value):
            return value
        if not isinstance(value, Tensor):
            dtype = self._expected(schema, position, inputs)
            if dtype is None and not isinstance(value, list | tuple):
                dtype = "bool" if isinstance(value, bool) else None
            try:
                value = torch.tensor(value, dtype=DTYPES[dtype] if dtype else None)
            except (TypeError, ValueError, RuntimeError) as error:
                raise FormError(
                    self._operator.name, f"its ONNX form uses {value!r} as an input: {error}"
                ) from None
        return self.constant(value)

    def _expected(self, schema: Any, position: int, inputs: Sequence[Any]) -> str | None:
        """Return the dtype that the input at `position` must have, or `None` if it is unknown."""
        if schema is None or not schema.inputs:
            return None
        kinds = [schema.inputs[min(i, len(schema.inputs) - 1)].type_str for i in range(len(inputs))]
        if match := re.fullmatch(r"tensor\((\w+)\)", kinds[position]):
            return {"float": "float32", "double": "float64"}.get(match[1], match[1])
        for kind, other in zip(kinds, inputs, strict=True):
            if kind == kinds[position] and other is not None and self._is_value(other):
                return self._dtype(other)
        return None

    def _remember(
        self, schema: Any, inputs: Sequence[Any], attributes: Attributes, made: Sequence[Any]
    ) -> None:
        """Infer the dtypes of new values, since later constants get the same dtypes."""
        if schema is None:
            return
        names = {number: name for name, number in ELEMENT_TYPES.items()}
        to = {key: value for key, kind, value in attributes if key in ("to", "dtype")}
        for position, value in enumerate(made):
            kind = schema.outputs[min(position, len(schema.outputs) - 1)].type_str
            dtype = {"tensor(bool)": "bool", "tensor(int64)": "int64"}.get(kind)
            for index, given in enumerate(inputs):
                formal = schema.inputs[min(index, len(schema.inputs) - 1)].type_str
                if dtype is None and formal == kind and given is not None:
                    dtype = self._dtype(given)
            dtype = names.get(next(iter(to.values()), 0), dtype)
            if dtype is not None:
                self._known[_key(value)] = dtype


def translate(
    translation: OnnxTranslation, emitter: Emitter, operator: Operator, arguments: Mapping[str, Any]
) -> tuple[Any, ...]:
    """Write the nodes of one call.

    Args:
        emitter: the exporter's emitter.
        arguments: its arguments by name; tensors are the exporter's values.

    Returns:
        One value per result, then one per mutated argument.

    Raises:
        ExportError: the translation fails, or returns a wrong number of values.
    """
    how = translation.how
    if isinstance(how, str):
        tensors = [p.name for p in operator.signature.tensors]
        inputs: list[Any] = []
        for name in tensors if translation.inputs is None else translation.inputs:
            value = arguments[name]
            inputs += value if isinstance(value, list | tuple) else [value]
        attributes = {
            key: value(arguments)
            if callable(value)
            else arguments[value]
            if isinstance(value, str)
            else value
            for key, value in translation.attributes.items()
        }
        returned = emitter.node(how, *inputs, outputs=_outputs(operator), **attributes)
    else:
        try:
            if translation.symbolic:
                returned = how(GraphContext(emitter), *in_order(operator, arguments))
            else:
                positional, keywords = operator.split(arguments)
                returned = how(emitter, *positional, **keywords)
        except FormError:
            raise
        except ExportError as error:
            why = str(error).removeprefix(f"{operator.name}: ")
            raise FormError(operator.name, why) from error
        except Exception as error:
            what = "symbolic" if translation.symbolic else "register_onnx function"
            raise FormError(
                operator.name, f"its {what} failed: {type(error).__name__}: {error}"
            ) from error
    values = tuple(returned) if isinstance(returned, list | tuple) else (returned,)
    if len(values) != _outputs(operator):
        raise FormError(
            operator.name,
            f"its ONNX form gives {len(values)} values, expected "
            f"{_outputs(operator)}: one per result, then one per mutated argument",
        )
    return values


def in_order(operator: Operator, by_name: Mapping[str, Any]) -> list[Any]:
    """Return the arguments in the order of a ``symbolic``: by position, keyword-only ones last."""
    positional, keywords = operator.split(by_name)
    return [*positional, *keywords.values()]


def _outputs(operator: Operator) -> int:
    return len(operator.signature.results) + len(operator.signature.mutated)


class GraphContext:
    """The ``g`` of a ``torch.autograd.Function.symbolic``, for the exporter that lacks it.

    The suffix of an attribute gives its type, as in ``g.op("Mul", x, y, alpha_f=1.0)``.
    """

    def __init__(self, emitter: Emitter) -> None:
        self._emitter = emitter
        self.opset = emitter.opset

    def op(self, name: str, /, *inputs: Any, outputs: int = 1, **attributes: Any) -> Any:
        """Make one node."""
        plain = {re.sub(r"_[ifstz]$", "", key): value for key, value in attributes.items()}
        name = name.removeprefix("onnx::").removeprefix("aten::")
        if name == "Constant" and isinstance(plain.get("value"), Tensor):
            return self._emitter.constant(plain["value"])
        return self._emitter.node(
            name, *self._emitter.promoted(name, inputs), outputs=outputs, **plain
        )

    def __getattr__(self, name: str) -> Any:
        raise AttributeError(
            f"its symbolic uses g.{name}, which only the TorchScript exporter has; write a "
            'register_onnx function instead, or export with exporter="torchscript"'
        )


def _key(value: Any) -> Any:
    name = getattr(value, "debugName", None)
    return name() if name is not None else id(value)


def _kind(value: Any) -> str:
    if isinstance(value, list | tuple):
        return f"{_kind(value[0])}S" if value else "INTS"
    if isinstance(value, Tensor):
        return "TENSOR"
    return {bool: "INT", int: "INT", float: "FLOAT", str: "STRING"}[type(value)]


def _converted(kind: str, value: Any) -> Any:
    if isinstance(value, torch.dtype):
        return ELEMENT_TYPES[dtype_name(value)]
    single = {"INT": int, "FLOAT": float, "STRING": str}
    if kind in single:
        return single[kind](value)
    if kind.rstrip("S") in single and isinstance(value, list | tuple):
        return [single[kind.rstrip("S")](item) for item in value]
    return value
