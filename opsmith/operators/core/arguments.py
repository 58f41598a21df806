"""Name a call's arguments as the signature does, and describe them for binding."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import torch
from torch import Tensor
from torch.nn import Parameter

from opsmith.compat.torch_dispatch import storage_id
from opsmith.compat.torch_pytree import tree_leaves
from opsmith.errors import ArgumentError
from opsmith.signature import Signature, TensorInfo
from opsmith.signature.dtype_variables import UNBOUND, joined, parts
from opsmith.signature.dtypes import ALL_DTYPES, FLOAT8
from opsmith.untyped import Arguments, Value

DTYPES: dict[str, torch.dtype] = {name: getattr(torch, name) for name in ALL_DTYPES}
_NAMES: dict[torch.dtype, str] = {dtype: name for name, dtype in DTYPES.items()}

#: Types of arguments that Dynamo can put into a graph, besides tensors. It gives symbolic numbers
#: these types too. Dynamo of PyTorch 2.10 reads no `isinstance` with a union.
IN_GRAPHS = (int, float, str, type(None))
MANY = (list, tuple)


def is_float8(dtype: torch.dtype) -> bool:
    """Return whether PyTorch only stores a floating dtype, without computing in it."""
    return dtype_name(dtype) in FLOAT8


def dtype_name(dtype: torch.dtype) -> str:
    """Return the dtype's name: ``float32`` for ``torch.float32``."""
    return _NAMES.get(dtype) or str(dtype).removeprefix("torch.")


def describe(arguments: Arguments, signature: Signature) -> dict[str, Value]:
    """Return `arguments` with every tensor replaced by its `TensorInfo`."""
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


def every_tensor_in(arguments: Arguments) -> Iterator[tuple[str, Tensor]]:
    """Yield every tensor of a call with its name (``x``, ``xs[0]``)."""
    for name, value in arguments.items():
        if isinstance(value, Tensor):
            yield name, value
        elif isinstance(value, list | tuple):
            for position, item in enumerate(value):
                if isinstance(item, Tensor):
                    yield f"{name}[{position}]", item


def tensors_in(value: object) -> list[Tensor]:
    """Return every tensor of nested arguments or results: lists, tuples, mappings by name."""
    leaves = tree_leaves(dict(value) if isinstance(value, Mapping) else value)
    return [leaf for leaf in leaves if isinstance(leaf, Tensor)]


def each_tensor(value: Value) -> list[Tensor]:
    """Return the tensors of a tensor argument: none for `None`, all of a list."""
    if value is None:
        return []
    return list(value) if isinstance(value, list | tuple) else [value]


def holds_tensors(value: object) -> bool:
    """Return whether an argument is a list of tensors; False for an empty list."""
    return isinstance(value, list | tuple) and bool(value) and isinstance(value[0], Tensor)


def read_arguments(
    described: Mapping[str, dict[str, Value]],
    take: Callable[[int], bytes],
    device: str,
    known: dict[str, Tensor] | None = None,
) -> dict[str, Value]:
    """Create the arguments of a call from what `opsmith.checks.isolation.wire` makes of them.

    Args:
        described: the description of each argument by name.
        take: function that returns as many of the next bytes as it is told.
        device: where the arguments shall be.
        known: the memory of an earlier call by name, which is filled again where its size is equal;
            new memory is added.
    """
    known = {} if known is None else known
    made: dict[str, Tensor] = {}

    def value(name: str, one: dict[str, Value]) -> Value:
        match one["kind"]:
            case "plain":
                return one["value"]
            case "complex":
                return complex(*one["parts"])
            case "same":
                return made[one["name"]]
            case "tensor":
                if one["memory"] == name:
                    _fill(known, name, take(one["bytes"]), device)
                made[name] = torch.empty(0, dtype=DTYPES[one["dtype"]], device=device).set_(
                    known[one["memory"]].untyped_storage(),
                    one["offset"],
                    one["shape"],
                    one["strides"],
                )
                return made[name]
        items = [value(f"{name}[{position}]", item) for position, item in enumerate(one["items"])]
        return tuple(items) if one["kind"] == "tuple" else items

    return {name: value(name, one) for name, one in described.items()}


def _fill(known: dict[str, Tensor], name: str, data: bytes, device: str) -> None:
    """Write bytes into memory of this name, which is replaced unless its size is equal."""
    if name not in known or known[name].numel() != len(data):
        known[name] = torch.empty(len(data), dtype=torch.uint8, device=device)
    if data:
        known[name].copy_(torch.frombuffer(bytearray(data), dtype=torch.uint8))


def memory_of(tensor: Tensor) -> int:
    """Return an identifier of the storage in which a tensor lies; its views have the same."""
    return storage_id(tensor.untyped_storage())


def map_tensors(value: Value, change: Callable[[Tensor], object]) -> object:
    """Return an argument with `change` applied to the tensor, or to each tensor of the list."""
    if isinstance(value, Tensor):
        return change(value)
    return [change(item) for item in value] if holds_tensors(value) else value


def with_own_lists(arguments: Arguments) -> dict[str, object]:
    """Return `arguments` with every list copied, as the dispatcher does for each call.

    The called function may change its list: ``PIL.Image.paste`` extends two numbers to four.
    """
    return {
        name: list(value) if isinstance(value, list) else value for name, value in arguments.items()
    }


def map_named_tensors(
    arguments: Arguments, change: Callable[[str, Tensor], object]
) -> dict[str, object]:
    """Return `arguments` with ``change(name, tensor)`` for each tensor (``x``, ``xs[0]``)."""
    found: dict[str, object] = {}
    for name, value in arguments.items():
        if isinstance(value, Tensor):
            found[name] = change(name, value)
        elif holds_tensors(value):
            found[name] = [change(f"{name}[{n}]", item) for n, item in enumerate(value)]
        else:
            found[name] = value
    return found


def _info(value: object, name: str, signature: Signature) -> TensorInfo:
    if not isinstance(value, Tensor):
        raise ArgumentError(
            f"{signature.qualname}: argument {name!r} is {type(value).__name__}, expected a tensor."
        )
    if value.layout is not torch.strided:
        raise ArgumentError(
            f"{signature.qualname}: argument {name!r} is a tensor of layout "
            f"{str(value.layout).removeprefix('torch.')}, expected a dense one."
        )
    return TensorInfo(value.shape, dtype_name(value.dtype), str(value.device))


def generic_dtype(
    signature: Signature,
    arguments: Arguments,
    dtype_of: Callable[[Value], torch.dtype | None] = lambda value: getattr(value, "dtype", None),
) -> str | None:
    """Return a call's choice of dtypes, as `Signature.generic` has it; `None` if nothing fixes any.

    Args:
        arguments: the arguments by name; other objects may stand in for tensors.
        dtype_of: returns the dtype of an object that stands for a tensor, `None` for others.
    """
    variables = signature.dtype_variables
    chosen: list[str | None] = [None] * len(variables)
    for parameter in signature.tensors:
        type_ = parameter.tensor_type
        position = None if type_ is None else signature.variable_position(type_)
        if type_ is None or position is None or chosen[position] is not None:
            continue
        value = arguments[parameter.name]
        dtypes = map(dtype_of, value if isinstance(value, list | tuple) else [value])
        found = next((dtype for dtype in dtypes if dtype is not None), None)
        if found is not None:
            chosen[position] = variables[position].chosen_by(type_.dtypes, dtype_name(found))
    return joined(chosen)


def case_dtype(signature: Signature, dtype: str | None) -> Value:
    """Return the dtype for which an author's function makes cases.

    Where there are several dtype variables, it is a dictionary of their dtypes by name.
    """
    variables = signature.dtype_variables
    if len(variables) < 2:
        return DTYPES[dtype or "float32"]
    chosen = zip(variables, parts(dtype) or [UNBOUND] * len(variables), strict=True)
    return {own.label: DTYPES[own.names[-1] if one == UNBOUND else one] for own, one in chosen}


def tensors(arguments: Arguments, signature: Signature) -> list[Tensor]:
    """Return every tensor of the call, including those in lists, in the signature's order."""
    return [item for p in signature.tensors for item in each_tensor(arguments[p.name])]


def output_names(signature: Signature, returned: Value, arguments: Arguments) -> list[str]:
    """Return the names of the tensors that `flatten` returns: results, then written arguments."""
    names: list[str] = []
    many = returned if len(signature.results) > 1 else [returned] * len(signature.results)
    for result, value in zip(signature.results, many, strict=True):
        shown = "the result" if len(signature.results) == 1 else result.name
        if isinstance(value, list | tuple):
            names.extend(f"{shown}[{position}]" for position in range(len(value)))
        else:
            names.append(shown)
    written = {parameter.name: arguments[parameter.name] for parameter in signature.mutated}
    names.extend(f"{name} (written into)" for name, _ in every_tensor_in(written))
    return names


def flatten(signature: Signature, returned: Value, arguments: Arguments) -> list[Tensor]:
    """Return every tensor that a call produced: its results and the arguments it wrote into."""
    many = returned if len(signature.results) > 1 else [returned] * len(signature.results)
    found: list[Tensor] = []
    for value in many:
        found.extend(value if isinstance(value, list | tuple) else [value])
    for parameter in signature.mutated:
        found.extend(each_tensor(arguments[parameter.name]))
    return found


def can_be_functionalised(tensor: Tensor) -> bool:
    """Return whether PyTorch functionalises an operator that writes, called with a tensor."""
    kind = type(tensor)
    plain = kind is Tensor or kind is Parameter or hasattr(kind, "__tensor_flatten__")
    return plain and tensor.layout is torch.strided
