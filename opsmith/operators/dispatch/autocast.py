"""Kernels for ``torch.autocast``."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from opsmith import kernels
from opsmith.compat.torch_dispatch import key_set, passing_over
from opsmith.errors import DeclarationError
from opsmith.signature import Signature

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
    """Return whether autocast can pass the operator generic tensors of different dtypes."""
    generic = [
        p
        for p in signature.tensors
        if p.tensor_type and p.tensor_type.shape and p.tensor_type.dtypes.generic
    ]
    return len(generic) > 1 or any(p.is_tensor_list for p in generic)


def promoting_kernel(operator: Operator, key: str) -> Callable[..., Any]:
    """Return the autocast kernel that casts generic tensors to the widest dtype among them.

    Under autocast some inputs are already half precision and others are not. The signature requires
    one dtype, and the widest loses nothing.
    """
    names = [
        p.name
        for p in operator.signature.tensors
        if p.tensor_type and p.tensor_type.shape and p.tensor_type.dtypes.generic and not p.mutated
    ]

    def target(arguments: dict[str, Any]) -> torch.dtype | None:
        from opsmith.operators.core.arguments import each_tensor

        dtypes = [
            tensor.dtype
            for name in names
            for tensor in each_tensor(arguments[name])
            if tensor.is_floating_point()
        ]
        widest: torch.dtype | None = None
        for dtype in dtypes:
            widest = dtype if widest is None else torch.promote_types(widest, dtype)
        return widest

    return _casting_kernel(operator, key, names, target)


def casting_kernel(operator: Operator, key: str, dtype: torch.dtype) -> Callable[..., Any]:
    """Return the autocast kernel that casts every floating tensor to `dtype`."""
    names = [p.name for p in operator.signature.tensors if not p.mutated]
    return _casting_kernel(operator, key, names, lambda _: dtype)


def _casting_kernel(
    operator: Operator,
    key: str,
    names: list[str],
    target: Callable[[dict[str, Any]], torch.dtype | None],
) -> Callable[..., Any]:
    exclude = key_set(key)

    def kernel(_keyset: Any, *args: Any, **kwargs: Any) -> Any:
        arguments = operator.arguments(args, kwargs)
        dtype = target(arguments)
        if dtype is not None:
            for name in names:
                value = arguments[name]
                if isinstance(value, list | tuple):
                    arguments[name] = [_cast(item, dtype) for item in value]
                elif value is not None:
                    arguments[name] = _cast(value, dtype)
        with passing_over(exclude):
            return operator(**arguments)

    return kernel


def _cast(value: Tensor, dtype: torch.dtype) -> Tensor:
    return value.to(dtype) if value.is_floating_point() else value
