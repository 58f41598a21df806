"""Turn a method into its operator's reference, from fields to results and new field values."""

from __future__ import annotations

import inspect
import types
from collections.abc import Sequence

import torch
from torch import Tensor

from opsmith.errors import ArgumentError
from opsmith.kernels import HOST
from opsmith.operators.core.arguments import DTYPES, holds_tensors
from opsmith.signature import Parameter, ScalarType, SequenceType, TensorType
from opsmith.signature.class_model import RESULT_DTYPES, Returned
from opsmith.untyped import Arguments, Value

_PYTHON_TYPES: dict[str, tuple[type, ...]] = {
    "int": (int, torch.SymInt),
    "float": (float, int, torch.SymFloat),
    "bool": (bool, torch.SymBool),
}


class State:
    """A mixin for a copy of the user's class, whose objects hold the fields of one call.

    Only the fields that the running method declares as mutated can be assigned.
    """

    _opsmith_changes: tuple[str, ...]
    _opsmith_method: str

    def __setattr__(self, name: str, value: object) -> None:
        if name not in self._opsmith_changes:
            fields = vars(self)
            what = "changes" if name in fields else "sets"
            hint = (
                f'declare it: @opsmith.method(mutates=("{name}",))'
                if name in fields
                else "an object holds its declared fields and nothing else"
            )
            raise ArgumentError(f"{self._opsmith_method}: the reference {what} {name!r}; {hint}.")
        object.__setattr__(self, name, value)


def state_type(python_class: type) -> type:
    """Return a subclass of the user's class with guarded fields."""
    return types.new_class(python_class.__name__, (State, python_class))


def make_state(
    kind: type,
    fields: Sequence[Parameter],
    values: Arguments,
    method: str = "",
    changes: Sequence[str] = (),
) -> object:
    """Create an object of a `state_type` with `values` as its fields."""
    state: object = object.__new__(kind)
    for field in fields:
        value = values[field.name]
        if isinstance(field.type, SequenceType) and field.type.length is not None and value:
            value = tuple(value)
        object.__setattr__(state, field.name, value)
    object.__setattr__(state, "_opsmith_changes", tuple(changes))
    object.__setattr__(state, "_opsmith_method", method)
    return state


class Reference:
    """A method of the user's class as a function of the fields and the method's own arguments.

    The name, module, code and annotations that `opsmith.op` reads are the method's, so that
    messages and relative paths refer to the user's file.

    Args:
        method: the user's function.
        label: ``ns::Class.method``, for messages.
        kind: the `state_type`.
        fields: the fields of the class.
        mutates: the names of the fields that the method changes.
        returns: the types that the method returns.
        parameters: the operator's parameters, in order.
        annotations: the operator's annotations, by parameter, and ``return``.
    """

    def __init__(
        self,
        method: types.FunctionType,
        label: str,
        kind: type,
        fields: Sequence[Parameter],
        mutates: Sequence[str],
        returns: Sequence[Returned],
        parameters: Sequence[inspect.Parameter],
        annotations: Arguments,
    ) -> None:
        self.method = method
        self._label = label
        self._kind = kind
        self._fields = tuple(fields)
        self._mutates = tuple(mutates)
        self._returns = tuple(returns)
        self.__name__ = method.__name__
        self.__qualname__ = method.__qualname__
        self.__module__ = method.__module__
        self.__doc__ = method.__doc__
        self.__code__ = method.__code__
        self.__globals__ = method.__globals__
        self.__annotations__ = dict(annotations)
        self.__signature__ = inspect.Signature(list(parameters))

    def __call__(self, *args: Value, **kwargs: object) -> object:
        """Run the method on an object created from the first arguments."""
        count = len(self._fields)
        values = {f.name: v for f, v in zip(self._fields, args[:count], strict=False)}
        for field in self._fields[len(values) :]:
            values[field.name] = kwargs.pop(field.name)
        state = make_state(self._kind, self._fields, values, self._label, self._mutates)
        returned = self.method(state, *args[count:], **kwargs)
        device = _device([*args, *values.values(), *kwargs.values()])
        results = self._results(returned, device)
        for field in self._fields:
            if field.name not in self._mutates:
                continue
            new = getattr(state, field.name)
            if isinstance(field.type, TensorType):
                self._write(field.name, values[field.name], new)
            else:
                assert isinstance(field.type, ScalarType)
                results.append(_number(new, field.type.kind, device, self._says(field.name)))
        if not results:
            return None
        return results[0] if len(results) == 1 else tuple(results)

    def _says(self, field: str) -> str:
        return f"{self._label}: the reference set {field!r} to"

    def _results(self, returned: object, device: torch.device) -> list[object]:
        label = f"{self._label}: the reference returned"
        if not self._returns:
            if returned is not None:
                raise ArgumentError(f"{label} {type(returned).__name__}, expected None.")
            return []
        many = (returned,) if len(self._returns) == 1 else returned
        if not isinstance(many, tuple | list) or len(many) != len(self._returns):
            raise ArgumentError(
                f"{label} {type(returned).__name__}, expected {len(self._returns)} results."
            )
        return [
            _number(value, kind, device, label) if kind in RESULT_DTYPES else value
            for value, kind in zip(many, self._returns, strict=True)
        ]

    def _write(self, field: str, old: Tensor, new: object) -> None:
        """Copy the method's new value of a field into the caller's tensor."""
        if new is old:
            return
        if not isinstance(new, Tensor) or (new.shape, new.dtype) != (old.shape, old.dtype):
            got = f"{new.dtype} {tuple(new.shape)}" if isinstance(new, Tensor) else repr(new)
            raise ArgumentError(
                f"{self._says(field)} {got}, but it is {old.dtype} {tuple(old.shape)}: a method "
                "changes the values of a tensor, not its dtype or shape."
            )
        old.copy_(new)


def _device(values: Sequence[Value]) -> torch.device:
    for value in values:
        first = value[0] if holds_tensors(value) else value
        if isinstance(first, Tensor):
            return first.device
    return torch.device(HOST)


def _number(value: Value, kind: str, device: torch.device, label: str) -> Tensor:
    fits = isinstance(value, _PYTHON_TYPES[kind]) and (
        kind == "bool" or not isinstance(value, bool)
    )
    if not fits:
        raise ArgumentError(f"{label} {type(value).__name__}, expected {kind}.")
    # torch.tensor would not be traced when the reference is inlined.
    return torch.full((), value, dtype=DTYPES[RESULT_DTYPES[kind]], device=device)
