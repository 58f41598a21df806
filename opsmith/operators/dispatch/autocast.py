"""Kernels for ``torch.autocast``."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from opsmith import kernels
from opsmith.compat.torch_dispatch import key_set, passing_over
from opsmith.errors import DeclarationError
from opsmith.operators.core.arguments import dtype_name, each_tensor
from opsmith.signature import Parameter, Signature
from opsmith.signature.dtypes import FLOATING

if TYPE_CHECKING:
    from opsmith.operators.core.operator import Operator


def autocast_keys() -> list[str]:
    """Return the autocast keys of all device types, each once."""
    keys = (row.autocast_key for row in kernels.DEVICES.values())
    return list(dict.fromkeys(key for key in keys if key is not None))


def casting_key(name: str, device_type: str, cast_inputs: torch.dtype) -> str:
    """Return the autocast key of a device type, given the arguments of ``register_autocast``.

    Raises:
        DeclarationError: the device type does not support autocast, or `cast_inputs` is no dtype.
    """
    device = kernels.find_device(device_type)
    key = None if device is None else device.autocast_key
    if key is None:
        there = [one for one, row in kernels.DEVICES.items() if row.autocast_key is not None]
        raise DeclarationError(
            f"{name}: register_autocast({device_type!r}): there are {', '.join(there)}"
        )
    if not isinstance(cast_inputs, torch.dtype):
        raise DeclarationError(
            f"{name}: register_autocast: expected a dtype, as in torch.float16, got {cast_inputs!r}"
        )
    return key


def needs_promotion(signature: Signature) -> bool:
    """Return whether autocast can pass tensors of one dtype variable in different dtypes."""
    return any(
        len(parameters) > 1 or any(p.is_tensor_list for p in parameters)
        for parameters in _by_variable(signature)
    )


def _by_variable(signature: Signature) -> list[list[Parameter]]:
    """Return the tensors of each dtype variable that has floating-point dtypes."""
    found: dict[int, list[Parameter]] = {}
    for parameter in signature.tensors:
        type_ = parameter.tensor_type
        position = None if type_ is None else signature.variable_position(type_)
        if position is not None:
            found.setdefault(position, []).append(parameter)
    return [
        parameters
        for position, parameters in sorted(found.items())
        if set(signature.dtype_variables[position].names) & set(FLOATING)
    ]


def promoting_kernel(operator: Operator, key: str) -> Callable[..., Any]:
    """Return the autocast kernel that casts the tensors of a dtype variable to the widest dtype.

    Under autocast some inputs are already half precision and others are not. The signature requires
    one dtype of the tensors of a variable, and the widest loses nothing.
    """
    every = _by_variable(operator.signature)
    groups = [[p.name for p in group if not p.mutated] for group in every]

    def targets(arguments: dict[str, Any]) -> dict[str, torch.dtype]:
        found = {}
        for names in groups:
            widest = _widest(arguments[name] for name in names)
            if widest is not None:
                found.update(dict.fromkeys(names, widest))
        return found

    return _casting_kernel(operator, key, targets)


def _widest(values: Iterable[Any]) -> torch.dtype | None:
    """Return the widest dtype of floating-point tensors; a complex one counts by its precision."""
    widest: torch.dtype | None = None
    for value in values:
        for tensor in each_tensor(value):
            if tensor.is_floating_point() or tensor.is_complex():
                dtype = tensor.dtype.to_real()
                widest = dtype if widest is None else torch.promote_types(widest, dtype)
    return widest


def casting_kernel(operator: Operator, key: str, dtype: torch.dtype) -> Callable[..., Any]:
    """Return the autocast kernel that casts every floating tensor that may have `dtype` to it."""
    signature = operator.signature
    takers = [p for p in signature.tensors if not p.mutated and _may_have(signature, p, dtype)]
    targets = {parameter.name: dtype for parameter in takers}
    return _casting_kernel(operator, key, lambda _: targets)


def _casting_kernel(
    operator: Operator,
    key: str,
    targets: Callable[[dict[str, Any]], dict[str, torch.dtype]],
) -> Callable[..., Any]:
    exclude = key_set(key)

    def kernel(_keyset: Any, *args: Any, **kwargs: Any) -> Any:
        arguments = operator.arguments(args, kwargs)
        for name, dtype in targets(arguments).items():
            value = arguments[name]
            if isinstance(value, list | tuple):
                arguments[name] = [_cast(item, dtype) for item in value]
            elif value is not None:
                arguments[name] = _cast(value, dtype)
        with passing_over(exclude):
            return operator(**arguments)

    return kernel


def _may_have(signature: Signature, parameter: Parameter, dtype: torch.dtype) -> bool:
    type_ = parameter.tensor_type
    assert type_ is not None
    position = signature.variable_position(type_)
    names = type_.dtypes.names if position is None else signature.dtype_variables[position].names
    return type_.shape is None or dtype_name(dtype) in names


def _cast(value: Tensor, dtype: torch.dtype) -> Tensor:
    if value.is_complex() and dtype in (torch.float32, torch.float64):
        return value.to(dtype.to_complex())
    return value.to(dtype) if value.is_floating_point() else value
