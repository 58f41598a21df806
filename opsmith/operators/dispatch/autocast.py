"""Kernels for ``torch.autocast``."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from functools import partial

import torch
from torch import Tensor

from opsmith import kernels
from opsmith.compat.torch_dispatch import key_set, passing_over
from opsmith.errors import DeclarationError
from opsmith.operators.core.arguments import dtype_name, each_tensor, map_tensors
from opsmith.operators.core.operator import Operator
from opsmith.signature import Parameter, Signature
from opsmith.signature.dtypes import FLOATING


def autocast_keys() -> list[str]:
    """Return the autocast keys of all device types, each once."""
    keys = (row.autocast_key for row in kernels.DEVICES.values())
    return list(dict.fromkeys(key for key in keys if key is not None))


Casts = torch.dtype | Mapping[str, torch.dtype]
"""A dtype for all floating tensors, or dtypes for those of some dtype variables, by name."""


def casting_key(signature: Signature, device_type: str, cast_inputs: Casts) -> str:
    """Return the autocast key of a device type, given the arguments of ``register_autocast``.

    Raises:
        DeclarationError: the device type does not support autocast, `cast_inputs` is no dtype, or
            it names a dtype variable that the operator lacks, or a dtype that the variable lacks.
    """
    name = signature.qualname
    device = kernels.find_device(device_type)
    key = None if device is None else device.autocast_key
    if key is None:
        there = [one for one, row in kernels.DEVICES.items() if row.autocast_key is not None]
        raise DeclarationError(
            f"{name}: register_autocast({device_type!r}): there are {', '.join(there)}"
        )
    if isinstance(cast_inputs, Mapping):
        _require_variables(signature, cast_inputs)
    elif not isinstance(cast_inputs, torch.dtype):
        raise DeclarationError(
            f"{name}: register_autocast: expected a dtype, as in torch.float16, got {cast_inputs!r}"
        )
    return key


def _require_variables(signature: Signature, casts: Mapping[str, torch.dtype]) -> None:
    names = {variable.label: variable.names for variable in signature.dtype_variables}
    for label, dtype in casts.items():
        if label not in names:
            raise DeclarationError(
                f"{signature.qualname}: register_autocast: {label!r} is no dtype variable of the "
                f"operator; there are {', '.join(names) or 'none'}"
            )
        if not isinstance(dtype, torch.dtype) or dtype_name(dtype) not in names[label]:
            raise DeclarationError(
                f"{signature.qualname}: register_autocast: {label} is one of "
                f"{', '.join(names[label])}, got {dtype!r}"
            )


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


def promoting_kernel(operator: Operator, key: str) -> Callable[..., object]:
    """Return the autocast kernel that casts the tensors of a dtype variable to the widest dtype.

    Under autocast some inputs are already half precision and others are not. The signature requires
    one dtype of the tensors of a variable, and the widest loses nothing.
    """
    every = _by_variable(operator.signature)
    groups = [[p.name for p in group if not p.mutated] for group in every]

    def targets(arguments: dict[str, object]) -> dict[str, torch.dtype]:
        found = {}
        for names in groups:
            widest = _widest(arguments[name] for name in names)
            if widest is not None:
                found.update(dict.fromkeys(names, widest))
        return found

    return _casting_kernel(operator, key, targets)


def _widest(values: Iterable[object]) -> torch.dtype | None:
    """Return the widest dtype of floating-point tensors; a complex one counts by its precision."""
    widest: torch.dtype | None = None
    for value in values:
        for tensor in each_tensor(value):
            if tensor.is_floating_point() or tensor.is_complex():
                dtype = tensor.dtype.to_real()
                widest = dtype if widest is None else torch.promote_types(widest, dtype)
    return widest


def casting_kernel(operator: Operator, key: str, casts: Casts) -> Callable[..., object]:
    """Return the autocast kernel that casts floating tensors to the dtypes that `casts` says.

    A tensor that cannot have the dtype stays as it is.
    """
    found = ((p.name, _target(operator.signature, p, casts)) for p in operator.signature.tensors)
    written = {parameter.name for parameter in operator.signature.mutated}
    targets = {name: to for name, to in found if to is not None and name not in written}
    return _casting_kernel(operator, key, lambda _: targets)


def _casting_kernel(
    operator: Operator, key: str, targets: Callable[[dict[str, object]], dict[str, torch.dtype]]
) -> Callable[..., object]:
    exclude = key_set(key)

    def kernel(_keyset: object, *args: object, **kwargs: object) -> object:
        arguments = operator.arguments(args, kwargs)
        for name, dtype in targets(arguments).items():
            arguments[name] = map_tensors(arguments[name], partial(_cast, dtype=dtype))
        with passing_over(exclude):
            return operator(**arguments)

    return kernel


def _target(signature: Signature, parameter: Parameter, casts: Casts) -> torch.dtype | None:
    type_ = parameter.tensor_type
    assert type_ is not None
    position = signature.variable_position(type_)
    variable = None if position is None else signature.dtype_variables[position]
    if isinstance(casts, Mapping):
        return casts.get(variable.label) if variable is not None else None
    names = type_.dtypes.names if variable is None else variable.names
    return casts if dtype_name(casts) in names else None


def _cast(value: Tensor, dtype: torch.dtype) -> Tensor:
    if value.is_complex() and dtype in (torch.float32, torch.float64):
        return value.to(dtype.to_complex())
    return value.to(dtype) if value.is_floating_point() else value
