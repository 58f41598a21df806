"""A call's arguments as the signature names them, and what binding looks at in each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from opsmith.errors import ArgumentError
from opsmith.signature import NO_DEFAULT, Signature, TensorInfo
from opsmith.signature.dtypes import ALL_DTYPES

DTYPES: dict[str, torch.dtype] = {name: getattr(torch, name) for name in ALL_DTYPES}
_NAMES: dict[torch.dtype, str] = {dtype: name for name, dtype in DTYPES.items()}


def dtype_name(dtype: torch.dtype) -> str:
    """``torch.float32`` as ``float32``."""
    return _NAMES.get(dtype) or str(dtype).removeprefix("torch.")


def named(signature: Signature) -> Callable[[tuple[Any, ...], Mapping[str, Any]], dict[str, Any]]:
    """A function from a call's ``(args, kwargs)`` to its arguments by name, defaults filled in.

    The dispatcher leaves arguments that equal their default out of what it passes on.
    """
    names = [parameter.name for parameter in signature.parameters]
    defaults = {
        parameter.name: parameter.default
        for parameter in signature.parameters
        if parameter.default is not NO_DEFAULT
    }
    known = frozenset(names)
    positional = sum(not parameter.keyword_only for parameter in signature.parameters)
    qualname = signature.qualname

    def arguments(args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> dict[str, Any]:
        if len(args) > len(names):
            raise ArgumentError(f"{qualname}: takes {len(names)} arguments, got {len(args)}.")
        if len(args) > positional:
            raise ArgumentError(
                f"{qualname}: argument {names[positional]!r} must be given by name: "
                f"{names[positional]}=..."
            )
        given = dict(zip(names, args, strict=False))
        for name in kwargs:
            if name not in known:
                raise ArgumentError(
                    f"{qualname}: has no argument {name!r}; there are {', '.join(names)}."
                )
            if name in given:
                raise ArgumentError(f"{qualname}: argument {name!r} is given twice.")
        complete = {**defaults, **given, **kwargs}
        missing = [name for name in names if name not in complete]
        if missing:
            raise ArgumentError(f"{qualname}: argument {missing[0]!r} is missing.")
        return {name: complete[name] for name in names}

    return arguments


def describe(arguments: Mapping[str, Any], signature: Signature) -> dict[str, Any]:
    """`arguments` with every tensor replaced by its `TensorInfo`."""
    described = dict(arguments)
    for parameter in signature.tensors:
        value = arguments[parameter.name]
        if value is None:
            continue
        if parameter.is_tensor_list:
            described[parameter.name] = [
                None if item is None else _info(item, f"{parameter.name}[{position}]", signature)
                for position, item in enumerate(value)
            ]
        else:
            described[parameter.name] = _info(value, parameter.name, signature)
    return described


def _info(value: Any, name: str, signature: Signature) -> TensorInfo:
    if not isinstance(value, Tensor):
        raise ArgumentError(
            f"{signature.qualname}: argument {name!r} is {type(value).__name__}, expected a tensor."
        )
    if value.layout is not torch.strided:
        layout = str(value.layout).removeprefix("torch.")
        raise ArgumentError(
            f"{signature.qualname}: argument {name!r} is a tensor of layout {layout}, expected a "
            "dense one."
        )
    return TensorInfo(value.shape, dtype_name(value.dtype), str(value.device))


def tensors(arguments: Mapping[str, Any], signature: Signature) -> list[Tensor]:
    """Every tensor of the call, those in lists too, in the signature's order."""
    found: list[Tensor] = []
    for parameter in signature.tensors:
        value = arguments[parameter.name]
        if parameter.is_tensor_list:
            found.extend(value or ())
        elif value is not None:
            found.append(value)
    return found


def output_names(signature: Signature, returned: Any) -> list[str]:
    """What `flatten` gives is called: results, then what was written into."""
    names: list[str] = []
    many = returned if len(signature.results) > 1 else [returned] * len(signature.results)
    for result, value in zip(signature.results, many, strict=True):
        shown = "the result" if len(signature.results) == 1 else result.name
        if isinstance(value, list | tuple):
            names.extend(f"{shown}[{position}]" for position in range(len(value)))
        else:
            names.append(shown)
    names.extend(f"{parameter.name} (written into)" for parameter in signature.mutated)
    return names


def flatten(signature: Signature, returned: Any, arguments: Mapping[str, Any]) -> list[Tensor]:
    """Every tensor that a call gave: its results, and the arguments that it wrote into."""
    many = returned if len(signature.results) > 1 else [returned] * len(signature.results)
    found: list[Tensor] = []
    for value in many:
        found.extend(value if isinstance(value, list | tuple) else [value])
    for parameter in signature.mutated:
        value = arguments[parameter.name]
        if value is not None:
            found.append(value)
    return found
