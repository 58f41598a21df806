"""Derive an operator's fake kernel (shapes, dtypes and strides without data) from its signature."""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import Tensor
from torch.library import Library

from opsmith.compat.torch_dispatch import META, has_kernel
from opsmith.compat.torch_inductor import take_calls_that_write_nothing
from opsmith.compat.torch_library import destroy, has_fake_kernel
from opsmith.compat.torch_ops import OpOverload, is_builtin
from opsmith.compat.torch_tracing import demand
from opsmith.errors import ArgumentError, OpsmithError
from opsmith.kernels import HOST
from opsmith.operators.core.arguments import describe, each_tensor
from opsmith.operators.core.validation import result_dtype
from opsmith.signature import Bindings, Signature, TensorType, bind, result_shapes
from opsmith.signature.calls import named
from opsmith.signature.parameters import TensorListType
from opsmith.untyped import Arguments, Value


def fake_kernel(signature: Signature) -> Callable[..., Value]:
    """Return the fake kernel of an operator, for ``torch.library.register_fake``.

    Sizes are compared with ``torch._check``: it adds a guard for a symbolic size that has a value,
    and a runtime assertion for one that has none. No size is converted to an int, so none is
    specialised.
    """
    arguments_of = named(signature)
    results = signature.results
    if not signature.shaped:
        types = ", ".join(str(result.type) for result in results)
        lacks = (
            "has any number of tensors. Write a tuple of results, or register_fake."
            if any(isinstance(result.type, TensorListType) for result in results)
            else 'has no shape. Write one, as in Float[Tensor, "N C"], or register_fake.'
        )

        def missing(*_args: object, **_kwargs: object) -> object:
            raise OpsmithError(
                f"{signature.qualname}: has no fake kernel, which tracing (torch.compile, "
                f"torch.export) needs: the declared result {types} {lacks}"
            )

        return checked_fake(signature, missing)

    def fake(*args: object, **kwargs: object) -> object:
        arguments = arguments_of(args, kwargs)
        bindings = bind(signature, describe(arguments, signature), check_size)
        sizes: dict[str, object] = {}
        if signature.data_dependent:
            context = torch.library.get_ctx()
            sizes = {name: context.new_dynamic_size() for name in signature.data_dependent}
        return as_returned(empty_results(signature, bindings, arguments, sizes))

    return fake


def empty_results(
    signature: Signature, bindings: Bindings, arguments: Arguments, sizes: Arguments | None = None
) -> list[Tensor]:
    """Allocate the results of a call, without computing them.

    Args:
        signature: the operator's signature, which must be `shaped`.
        bindings: the dimensions and dtype that the call fixed.
        arguments: the call's arguments, by name.
        sizes: the sizes of data-dependent dimensions.
    """
    made = []
    for result, shape in zip(
        signature.results,
        result_shapes(signature, bindings, arguments, check_size, sizes),
        strict=True,
    ):
        assert isinstance(result.type, TensorType)
        dtype = result_dtype(signature, result.type, bindings)
        made.append(torch.empty(shape, dtype=dtype, device=bindings.device or HOST))
    return made


def as_returned(results: list[Tensor]) -> Value:
    """Return results in the form of a call's return value: `None`, one tensor, or a tuple."""
    if not results:
        return None
    return results[0] if len(results) == 1 else tuple(results)


def checked_fake(signature: Signature, function: Callable[..., object]) -> Callable[..., object]:
    """Return an author's fake kernel with a check that the arguments fit the signature.

    With it, tracing refuses the same calls as running does.
    """
    arguments_of = named(signature)

    @functools.wraps(function)
    def fake(*args: object, **kwargs: object) -> object:
        bind(signature, describe(arguments_of(args, kwargs), signature), check_size)
        return function(*args, **kwargs)

    return fake


def noticing_no_write(signature: Signature, function: Callable[..., Value]) -> Callable[..., Value]:
    """Wrap a fake kernel so that calls which write nothing can be compiled.

    These are calls in which each argument that is written is `None` or an empty list.
    """
    written = signature.mutated
    if len(signature.results) != 1 or not all(p.optional or p.is_tensor_list for p in written):
        return function
    arguments_of = named(signature)

    @functools.wraps(function)
    def fake(*args: object, **kwargs: object) -> object:
        arguments = arguments_of(args, kwargs)
        if not any(each_tensor(arguments[parameter.name]) for parameter in written):
            take_calls_that_write_nothing()
        return function(*args, **kwargs)

    return fake if written else function


def check_size(condition: object, message: Callable[[], str]) -> None:
    """Raise unless a condition holds on sizes, some of which may be symbols."""
    if isinstance(condition, bool):
        if not condition:
            raise ArgumentError(message())
        return
    demand(condition, message)


_TRACED = ("Meta", "CompositeImplicitAutograd", "CompositeExplicitAutograd")
# A registration ends with its Library; keep it, and replace it when the operator is adopted again.
_GIVEN: dict[str, Library] = {}


def give_fake(signature: Signature, overload: OpOverload) -> None:
    """Derive a fake kernel from the declaration, unless the operator can be traced already.

    Do nothing if the declaration gives no shapes.
    """
    name = overload.name()
    given = _GIVEN.pop(name, None)
    if given is not None:
        destroy(given)
    if not signature.shaped or _has_fake(overload):
        return
    library = Library(overload.namespace, "FRAGMENT")
    torch.library.register_fake(name, fake_kernel(signature), lib=library)
    _GIVEN[name] = library


def _has_fake(overload: OpOverload) -> bool:
    name = overload.name()
    if is_builtin(overload) or META in overload.py_kernels:
        return True
    # The other keys hold kernels for every device, which call other operators.
    if any(has_kernel(name, key) for key in _TRACED):
        return True
    return has_fake_kernel(name)
