"""Say why PyTorch rejects an argument, or would truncate it, where it names none itself."""

from __future__ import annotations

import numbers
import operator
import sys

import torch
from torch import Tensor
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter

from opsmith.compat.functorch import outlived_its_transform, unwrapped
from opsmith.operators.core.arguments import dtype_name, every_tensor_in
from opsmith.signature import ScalarType, SequenceType, Signature
from opsmith.untyped import Arguments, Value

_SHAPELESS = "is a parameter without a shape. Call its lazy module once before this call."
_NUMBERS: dict[str, type[int] | type[float]] = {"int": int, "float": float}


def unusable(tensor: Tensor) -> str | None:
    """Return why no operator can compute with a tensor, as the end of a sentence; else `None`."""
    shapeless = UninitializedParameter | UninitializedBuffer
    if isinstance(tensor, shapeless):
        return _SHAPELESS
    if outlived_its_transform(tensor):
        return (
            "belongs to a transform of torch.func that has ended. Return it from the function that "
            "is transformed, in place of keeping it."
        )
    tensor = unwrapped(tensor)
    if isinstance(tensor, shapeless):
        return _SHAPELESS
    if tensor.is_nested or tensor.layout is not torch.strided:
        layout = "nested" if tensor.is_nested else str(tensor.layout).removeprefix("torch.")
        return f"is a tensor of layout {layout}, expected a dense one."
    return None


def unusable_here(signature: Signature, arguments: Arguments, error: Exception) -> str | None:
    """Return which tensor caused `error`, and why, as the end of a sentence; else `None`.

    Most operators accept such tensors, so the text of `error` has to name the problem too.
    """
    tensors = [
        (name, tensor, signature.by_name[name.partition("[")[0]])
        for name, tensor in every_tensor_in(arguments)
    ]
    for name, _, parameter in tensors:
        if parameter.tensor_type is None and _is_unread(name, str(error)):
            return (
                f"{name!r} is a tensor, whose value is unknown under a transform of torch.func "
                "and while tracing. Pass a number."
            )
    message = f"{type(error).__name__}: {error}"
    for name, tensor, parameter in tensors:
        problem = _problem(unwrapped(tensor), parameter.mutated, message)
        if problem is not None:
            return f"{name!r} {problem}"
    return None


def _is_unread(name: str, message: str) -> bool:
    """Return whether PyTorch failed to read the number in a tensor passed for a number."""
    said = "Cannot access storage of", f"argument {name!r} but instead", "_local_scalar_dense"
    return any(words in message for words in said)


def _problem(tensor: Tensor, written: bool, message: str) -> str | None:
    kind = type(tensor).__name__
    if "nference tensors cannot be saved" in message and tensor.is_inference():
        return (
            "was made in inference mode, and autograd cannot save it. Pass a clone, or call the "
            "operator under torch.no_grad()."
        )
    freed = "setStorage", "not allocated yet", "a storage that was resized"
    if any(words in message for words in freed) and _lacks_memory(tensor):
        return "has a storage that was resized to less than the tensor takes."
    if "MathBitsFallback" in message and written and (tensor.is_neg() or tensor.is_conj()):
        return "is written, and is a negated or conjugated view. Pass a clone."
    if "alias annotations" in message and written:
        return (
            "is written into, which PyTorch functionalises for its own operators only. Call the "
            "operator outside of torch.func.functionalize."
        )
    if "Multiple dispatch failed" in message and type(tensor) is not Tensor and kind in message:
        return f"is a {kind}, which does not implement this operator. Pass a plain tensor."
    unknown = "DynamicOutputShape" in message or "data-dependent shape" in message
    if unknown and (tensor.is_meta or kind == "FakeTensor"):
        return (
            "has no values, and the sizes of the results depend on them. Pass a tensor with "
            "values, or trace by torch.export or torch.compile."
        )
    if kind == "FakeTensor" and ("FakeTensor" in message or "INTERNAL ASSERT" in message):
        return (
            "is a FakeTensor, and other arguments are not. Pass tensors of one kind, or call the "
            "operator in the FakeTensorMode."
        )
    if f"kernel has no {dtype_name(tensor.dtype)};" in message:
        return f"has dtype {dtype_name(tensor.dtype)}: {message.rpartition(': ')[2]}"
    return None


def _lacks_memory(tensor: Tensor) -> bool:
    if not tensor.numel():
        return False
    steps = zip(tensor.shape, tensor.stride(), strict=True)
    end = tensor.storage_offset() + sum((size - 1) * stride for size, stride in steps) + 1
    return tensor.untyped_storage().nbytes() < end * tensor.element_size()


def number_places(signature: Signature) -> tuple[tuple[int, str, type[int] | type[float]], ...]:
    """Return position, name and type of each parameter that is a number or a sequence of them."""
    return tuple(
        (sys.maxsize if parameter.keyword_only else position, parameter.name, _NUMBERS[kind])
        for position, parameter in enumerate(signature.parameters)
        if isinstance(parameter.type, ScalarType | SequenceType)
        and (kind := parameter.type.kind) in _NUMBERS
    )


def is_cut(value: Value, kind: type[int] | type[float]) -> bool:
    """Return whether `value` is, or holds, a number that Python does not convert to `kind` itself.

    An int is cut from what has a fraction, a float from what has an imaginary part, as
    `numpy.complex64`, whose `__float__` only warns.
    """
    if isinstance(value, list | tuple):
        return any(type(item) is not kind and is_cut(item, kind) for item in value)
    if kind is float:
        return is_complex(value)
    if value is None or isinstance(value, int | str | torch.SymInt):
        return False
    if isinstance(value, Tensor):
        return value.is_floating_point() or value.is_complex()
    if getattr(value, "ndim", 0):
        return True
    try:
        operator.index(value)
    except Exception:  # a foreign class may raise anything
        return True
    return False


def is_complex(value: object) -> bool:
    """Return whether a number is complex, be it Python's or NumPy's."""
    return isinstance(value, numbers.Complex) and not isinstance(value, numbers.Real)
