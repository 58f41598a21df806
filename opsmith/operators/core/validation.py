"""Validate calls in Python, for Python kernels; C++ kernels contain generated checks."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass

import torch
from torch import Tensor

from opsmith.compat.torch_dispatch import share_memory
from opsmith.errors import ArgumentError
from opsmith.operators.core.arguments import DTYPES, describe, dtype_name, each_tensor
from opsmith.operators.core.overlap import refuse_overlap
from opsmith.operators.core.value_checks import check_values
from opsmith.signature import Bindings, Signature, TensorType, bind, result_shapes
from opsmith.signature.sizes.shapes import show_sizes
from opsmith.untyped import Args, Arguments, Value


@dataclass(frozen=True)
class Valid:
    """The facts about a call whose shapes, dtypes and scalars are valid.

    Attributes:
        bindings: the dimensions and dtype that the call fixed.
        shapes: shapes of the results; `None` where declaration and arguments do not fix them.
        dtypes: dtypes of the results; `None` where the shape is `None`.
    """

    bindings: Bindings
    shapes: list[tuple[int, ...] | None]
    dtypes: list[torch.dtype | None]


class Validator:
    """A validator for the calls of one operator.

    Everything that depends on shapes, dtypes, devices and scalars alone is computed once per
    combination, since a model calls an operator with the same few combinations again and again.
    """

    _REMEMBERED = 256

    def __init__(self, signature: Signature) -> None:
        self._signature = signature
        self._valid: dict[object, Valid] = {}
        self._keys = [
            _list_key if p.is_tensor_list else _tensor_key if p.is_tensor else _scalar_key
            for p in signature.parameters
        ]
        self._constrained = [p for p in signature.tensors if p.constraints]
        self._mutated = signature.mutated
        self._known_shapes = signature.shaped and not signature.data_dependent
        # Checks of values cannot be cached: they run in each call.
        positional = not any(parameter.keyword_only for parameter in signature.parameters)
        self._by_key = positional and not self._constrained and not self._mutated

    def remembered(self, values: tuple[object, ...]) -> Valid | None:
        """Return the cached facts about such a call; `None` where more has to be checked.

        Args:
            values: the call's arguments, in the declaration's order; trailing ones may be missing.
        """
        if not self._by_key or len(values) != len(self._keys):
            return None
        return self._valid.get(self._key(values))

    def _key(self, values: Iterable[object]) -> tuple[Value, ...]:
        return tuple([of(value) for of, value in zip(self._keys, values, strict=True)])

    def __call__(self, arguments: Arguments) -> Valid:
        """Check shapes, dtypes, devices, scalars and values.

        Args:
            arguments: every argument by name, in the declaration's order.

        Raises:
            ArgumentError: an argument is invalid; the message is the one that the C++ adapters use.
        """
        key = self._key(arguments.values())
        valid = self._valid.get(key)
        if valid is None:
            valid = self._bind(arguments)
            if len(self._valid) >= self._REMEMBERED:
                self._valid.clear()
            self._valid[key] = valid
        for parameter in self._mutated:
            refuse_overlap(self._signature, parameter.name, arguments[parameter.name])
        for parameter in self._constrained:
            check_values(self._signature, parameter, arguments, valid.bindings)
        return valid

    def _bind(self, arguments: Arguments) -> Valid:
        signature = self._signature
        bindings = bind(signature, describe(arguments, signature))
        if not self._known_shapes:
            unknown = [None] * len(signature.results)
            return Valid(bindings, [*unknown], [*unknown])
        types = [result.tensor_type for result in signature.results]
        dtypes = [result_dtype(signature, type_, bindings) for type_ in types]
        return Valid(bindings, list(result_shapes(signature, bindings, arguments)), [*dtypes])


def _tensor_key(value: Value) -> object:
    return value if value is None else (value.shape, value.dtype, value.device, value.layout)


def _list_key(value: Value) -> object:
    return value if value is None else tuple([_tensor_key(item) for item in value])


def _scalar_key(value: object) -> object:
    # A dictionary treats 1, 1.0 and True as the same key, so add the type.
    if isinstance(value, list | tuple):
        return tuple(value), type(value[0]) if value else None
    return value, type(value)


def result_test(signature: Signature) -> Callable[[Args, Valid, object], bool]:
    """Return a quick test of a Python kernel's results, given the arguments and their facts.

    If the test fails, something may be wrong, and `checked_results` has to decide.
    """
    count = len(signature.results)

    def fits(arguments: Args, valid: Valid, returned: object) -> bool:
        many = (returned,) if count == 1 else returned
        if type(many) is not tuple or len(many) != count or share_memory is None:
            return False
        for value, shape, dtype in zip(many, valid.shapes, valid.dtypes, strict=True):
            if (
                type(value) is not Tensor
                or value.dtype is not dtype
                or value.shape != shape
                or not value.is_contiguous()
                or value.is_neg()
                or value.is_conj()
            ):
                return False
        return not share_memory(arguments, {}, many)

    return fits


def checked_results(
    signature: Signature, arguments: Arguments, valid: Valid, returned: object, kernel: str
) -> object:
    """Compare a Python kernel's results with the declaration, and return them made contiguous.

    The fake kernel promises contiguous results that share no memory with the arguments.

    Raises:
        ResultError: the kernel returned something that contradicts the declaration.
    """
    results = signature.results
    name = signature.qualname
    bindings = valid.bindings
    if not results:
        if returned is not None:
            raise ResultError(
                f"{name}: {kernel} returned {type(returned).__name__}, expected None."
            )
        return None
    many = returned if len(results) > 1 else (returned,)
    if not isinstance(many, tuple | list) or len(many) != len(results):
        raise ResultError(
            f"{name}: {kernel} returned {type(returned).__name__}, expected {len(results)} results."
        )
    shapes: list[Value] = valid.shapes
    if signature.data_dependent and signature.shaped:
        sizes = _data_dependent_sizes(signature, many)
        shapes = list(result_shapes(signature, bindings, arguments, data_dependent=sizes))
    owners = {
        tensor.untyped_storage().data_ptr(): f"argument {parameter.name!r}"
        for parameter in signature.tensors
        for tensor in each_tensor(arguments[parameter.name])
        if tensor.numel()
    }
    checked = []
    for result, value, shape in zip(results, many, shapes, strict=True):
        which = "its result" if len(results) == 1 else f"its result {result.name!r}"
        if shape is None:
            for one in each_tensor(value):
                _require_own_memory(f"{name}: {kernel} returned {which}", which, one, owners)
            checked.append(value)
            continue
        type_ = result.type
        assert isinstance(type_, TensorType)
        wanted = signature.dtype_in(type_, bindings.dtype)
        if not isinstance(value, Tensor):
            kind = f"{type(value).__module__}.{type(value).__name__}".removeprefix("builtins.")
            hint = " Wrap it by torch.as_tensor(…)." if kind.startswith("numpy.") else ""
            raise ResultError(
                f"{name}: {kernel} returned {kind} as {which}, expected {type_}.{hint}"
            )
        if value.shape != shape or dtype_name(value.dtype) != wanted:
            raise ResultError(
                f"{name}: {kernel} returned {which} with shape {show_sizes(value.shape)} and dtype "
                f"{dtype_name(value.dtype)}, expected {type_}: {show_sizes(shape)} and {wanted}."
                f"\n  bound so far: {bindings.text()}"
            )
        _require_own_memory(f"{name}: {kernel} returned {which}", which, value, owners)
        checked.append(value.contiguous())
    return checked[0] if len(results) == 1 else tuple(checked)


class ResultError(ArgumentError):
    """Raised for a result that contradicts the declaration."""


class SharedMemoryError(ResultError):
    """Raised for a result in the memory of an argument or of another result."""


def _require_own_memory(begin: str, which: str, value: object, owners: dict[int, str]) -> None:
    """Require that a result lies in memory of its own, and note whose memory that is."""
    if not isinstance(value, Tensor) or not value.numel():
        return
    address = value.untyped_storage().data_ptr()
    if address in owners:
        remedy = "return a copy (.clone())"
        if owners[address].startswith("argument"):
            remedy += ", or name the argument in mutates_args"
        raise SharedMemoryError(
            f"{begin} in the memory of {owners[address]}; results are new memory, so {remedy}."
        )
    owners[address] = which


def _data_dependent_sizes(signature: Signature, returned: Value) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for result, value in zip(signature.results, returned, strict=True):
        dims = signature.result_dims(result)
        if not isinstance(value, Tensor) or value.dim() != len(dims):
            continue
        for dim, size in zip(dims, value.shape, strict=True):
            if str(dim) in signature.data_dependent:
                sizes.setdefault(str(dim), size)
    return {name: sizes.get(name, 0) for name in signature.data_dependent}


def result_dtype(signature: Signature, type_: TensorType, bindings: Bindings) -> torch.dtype:
    """Return the dtype of a declared result in a call."""
    name = signature.dtype_in(type_, bindings.dtype)
    assert name is not None
    return DTYPES[name]
