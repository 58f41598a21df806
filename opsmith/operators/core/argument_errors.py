"""Translate an exception of a failed call into an opsmith error.

PyTorch's schema parser rejects arguments before any kernel runs, and every C++ exception arrives
as a ``RuntimeError``. The arguments are examined again only after a call failed, so calls that
succeed pay nothing.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Sequence

import torch
from torch import Tensor

from opsmith.compat.torch_dispatch import subclasses_as_tensors
from opsmith.errors import KERNEL_ERRORS, ArgumentError, OpsmithError
from opsmith.operators.core.arguments import IN_GRAPHS, MANY, can_be_functionalised, dtype_name
from opsmith.operators.core.overlap import keep_apart
from opsmith.operators.core.unusable import is_complex, unusable, unusable_here
from opsmith.operators.core.validation import Validator
from opsmith.signature import (
    Parameter,
    ScalarType,
    SequenceType,
    Signature,
    TensorListType,
    TensorType,
)
from opsmith.signature.calls import named
from opsmith.signature.sizes.shapes import show_sizes
from opsmith.signature.wrong_arguments import show, too_large, wrong_value
from opsmith.untyped import Args, Arguments, Value

_RAISED = re.compile(r"tvm-ffi function '\w+' raised (\w+): ")


def refusal(
    signature: Signature, args: Args, kwargs: Arguments, error: Exception
) -> OpsmithError | None:
    """Return the error to raise in place of `error`, which a call with these arguments raised.

    Returns:
        An `ArgumentError` where an argument does not fit the declaration, an `OpsmithError` with
        the same words where a C++ kernel failed (of the kind that these words name, if they do),
        `None` where `error` itself is the best message.
    """
    # A subclass of Tensor may reject any operation on it.
    with subclasses_as_tensors():
        return _refusal(signature, args, kwargs, error)


def not_in_graphs(signature: Signature, args: Args, kwargs: Arguments) -> ArgumentError:
    """Return the error for a call with a value that no graph can contain; Dynamo traces this."""
    arguments = named(signature)(args, kwargs)
    for name, value in arguments.items():
        for item in value if isinstance(value, MANY) else (value,):
            if isinstance(item, Tensor):
                fits = not item.is_nested and can_be_functionalised(item)
            else:
                fits = isinstance(item, IN_GRAPHS)
            if not fits:
                return ArgumentError(
                    f"{signature.qualname}: argument {name!r} is of type {type(item).__name__}, "
                    "which is no number, text or plain, dense tensor, as torch.compile needs here."
                )
    raise AssertionError(arguments)


def _refusal(
    signature: Signature, args: Args, kwargs: Arguments, error: Exception
) -> OpsmithError | None:
    try:
        arguments = named(signature)(args, kwargs)
    except ArgumentError as refused:
        return refused
    for parameter in signature.parameters:
        value = arguments[parameter.name]
        problem = _problem(parameter, value)
        if problem is not None:
            # Report a missing tensor as validation does, with the sizes bound so far.
            items = value if isinstance(value, list | tuple) else (value,)
            missing = any(item is None for item in items)
            better = _refused(signature, arguments) if missing else None
            return better or ArgumentError(f"{signature.qualname}: argument {problem}")
    message = str(error)
    problem = unusable_here(signature, arguments, error)
    if problem is not None:
        return ArgumentError(f"{signature.qualname}: argument {problem}")
    if type(error) is not RuntimeError or not message.startswith(f"{signature.qualname}: "):
        return None
    in_python = _refused(signature, arguments)
    is_argument = in_python is not None and str(in_python) == message
    if is_argument:
        return ArgumentError(message)
    # The interface of kernels passes words alone, and PyTorch's stable ABI has no kinds of errors.
    raised = _RAISED.match(message, len(signature.qualname) + 2)
    return KERNEL_ERRORS.get(raised[1] if raised else "", OpsmithError)(message)


def _refused(signature: Signature, arguments: dict[str, object]) -> ArgumentError | None:
    """Return the error that validation in Python raises, or `None` where it raises none."""
    try:
        Validator(signature)(arguments)
        keep_apart(signature)(arguments)
    except ArgumentError as refused:
        return refused
    except Exception:  # under a transform, tensors may have no values to check
        return None
    return None


def _problem(parameter: Parameter, value: object) -> str | None:
    name, type_ = parameter.name, parameter.type
    if value is None and parameter.optional:
        return None
    expected = f"{type_} or None" if parameter.optional else str(type_)
    if parameter.drawn:
        expected = f"seed and offset ({type_}), a torch.Generator, or nothing"
    match type_:
        case TensorType():
            return _tensor_problem(name, value, expected)
        case ScalarType(kind):
            return _scalar_problem(name, value, kind, expected)
        case TensorListType() | SequenceType():
            if not isinstance(value, Sequence) or isinstance(value, str | bytes):
                return wrong_value(name, _show(value), expected)
    if isinstance(type_, SequenceType) and type_.length not in (None, len(value)):
        return f"{name!r} has {len(value)} elements, expected {type_.length}."
    for position, item in enumerate(value):
        place = f"{name}[{position}]"
        problem = (
            _tensor_problem(place, item, str(type_.element))
            if isinstance(type_, TensorListType)
            else _scalar_problem(place, item, type_.kind, type_.kind)
        )
        if problem is not None:
            return problem
    return None


def _tensor_problem(name: str, value: object, expected: str) -> str | None:
    if not isinstance(value, Tensor):
        return wrong_value(name, _show(value), expected)
    problem = unusable(value)
    return None if problem is None else f"{name!r} {problem}"


def _scalar_problem(name: str, value: Value, kind: str, expected: str) -> str | None:
    wrong = wrong_value(name, _show(value), expected)
    if kind == "str":
        return _text_problem(name, value) if isinstance(value, str) else wrong
    if isinstance(value, Tensor):
        return wrong if value.numel() != 1 else _no_number(name, value, kind)
    if kind == "int":
        if isinstance(value, torch.SymInt):
            return None
        try:
            number = operator.index(value)
        except Exception:  # a foreign class may raise anything
            return wrong
        fits = -(2**63) <= number < 2**63
        return None if fits else too_large(name, number)
    # float() of a complex number of NumPy's warns, and returns its real part.
    if isinstance(value, str) or is_complex(value):
        return wrong
    try:
        float(value)
    except Exception:
        return wrong
    return None


def _text_problem(name: str, value: str) -> str | None:
    try:
        value.encode()
    except UnicodeEncodeError:
        return f"{name!r} is {value!r}, expected a str that UTF-8 can encode."
    return None


def _no_number(name: str, value: Tensor, kind: str) -> str | None:
    """Return why a one-element tensor cannot be passed as a number; else `None`."""
    problem = unusable(value)
    if problem is not None:
        return f"{name!r} {problem}"
    if value.is_meta:
        return f"{name!r} is a tensor on meta, which has no value, expected {kind}."
    if kind == "int" and (value.is_floating_point() or value.dtype is torch.bool):
        return f"{name!r} is a tensor of dtype {dtype_name(value.dtype)}, expected int."
    if value.is_complex() and kind != "bool":
        return f"{name!r} is a complex tensor, expected {kind}."
    return None


def _show(value: object) -> str:
    """Describe a value, short enough for a message."""
    if isinstance(value, Tensor):
        return f"a tensor of shape {show_sizes(value.shape)}"
    return show(value)
