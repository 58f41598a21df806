"""Fake classes, which replace a custom class's objects during tracing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import torch
from torch import Tensor

from opsmith.compat.torch_library import CLASSES_LOGGER, register_fake_class
from opsmith.compat.torch_pytree import tree_leaves
from opsmith.compat.torch_tracing import asks_for_values
from opsmith.errors import DifferentiationError, OpsmithError
from opsmith.operators.classes.read_class import Declared
from opsmith.operators.classes.reference import make_state
from opsmith.signature import Signature
from opsmith.signature.calls import named
from opsmith.signature.class_model import RESULT_DTYPES, ClassModel, MethodModel
from opsmith.system.temporarily import silenced
from opsmith.untyped import Args, Value


class Owner(Protocol):
    """The parts of a `CustomClass` that its fake class reads."""

    @property
    def name(self) -> str:
        """Return ``namespace::Name``."""

    @property
    def model(self) -> ClassModel:
        """Return the declaration as plain data."""

    @property
    def declared(self) -> Declared:
        """Return the parsed class."""

    @property
    def methods(self) -> Mapping[str, Any]:  # each a `Method`, of a file above this one
        """Return the methods by name, each with its `operator`."""


def register(owner: Owner) -> None:
    """Register the fake class of a custom class, in place of an earlier one."""
    methods: dict[str, object] = {
        method.name: _fake_method(owner, method) for method in owner.model.methods
    }
    fake: object = type(
        f"Fake{owner.model.name}",
        (_FakeObject,),
        {**methods, "__obj_unflatten__": classmethod(lambda cls, flattened: cls(dict(flattened)))},
    )
    # Suppress PyTorch's warning: declaring a class again is allowed.
    with silenced(CLASSES_LOGGER):
        register_fake_class(owner.name, fake)


class _FakeObject:
    """An object with fields as attributes, and with fake tensors."""

    def __init__(self, fields: dict[str, Value]) -> None:
        vars(self).update(fields)


def _fake_method(owner: Owner, method: MethodModel) -> Callable[..., object]:
    if method.getter is not None:
        read = method.getter

        def get(self: _FakeObject) -> object:
            _refuse_what_changes(owner, method, [read])
            return vars(self)[read]

        return get
    arguments_of = method_arguments(owner, method)
    operator = owner.methods[method.name].operator
    returned = len(method.returns)

    def run(self: _FakeObject, *args: object, **kwargs: object) -> object:
        arguments = arguments_of(args, kwargs)
        if method.returns_scalars:
            return _run_for_numbers(owner, method, vars(self), arguments)
        _refuse_lost_gradient(owner, method, [*vars(self).values(), *arguments.values()])
        positional, keywords = operator.split({**vars(self), **arguments})
        results = operator.overload(*positional, **keywords)
        if len(operator.signature.results) > 1:
            results = tuple(results)[:returned]
            return results[0] if returned == 1 else results or None
        return results if returned else None

    return run


def method_arguments(
    owner: Owner, method: MethodModel
) -> Callable[[Args, Value], dict[str, Value]]:
    """Return a function from a method's ``(args, kwargs)`` to its arguments by name."""
    # A signature of the method alone gives the right wording in errors.
    signature = Signature(
        owner.model.namespace, f"{owner.model.name}.{method.name}", method.parameters, ()
    )
    return named(signature)


def _run_for_numbers(
    owner: Owner, method: MethodModel, fields: dict[str, object], arguments: dict[str, object]
) -> object:
    """Run a method that returns numbers, and refuse numbers that may differ between calls.

    A traced program stores a number as a constant.
    """
    if owner.model.mutable:
        _refuse_what_changes(owner, method, owner.model.mutable)
    declared = owner.declared
    message = (
        f"{owner.name}.{method.name}: returns {' and '.join(method.returns)} computed from a "
        "tensor's values or from a size that is not fixed, which a traced program cannot keep as a "
        'number. Return a tensor (-> Float[Tensor, ""]) to use it in a model.'
    )
    state = make_state(declared.state, owner.model.fields, fields, f"{owner.name}.{method.name}")
    try:
        returned = declared.references[method.name].method(state, **arguments)
    except RuntimeError as error:
        if not asks_for_values(error):
            raise
        raise OpsmithError(message) from error
    many = returned if isinstance(returned, tuple | list) else (returned,)
    for value, kind in zip(many, method.returns, strict=True):
        if kind in RESULT_DTYPES and not isinstance(value, int | float | bool):
            raise OpsmithError(message)
    return returned


def _refuse_lost_gradient(owner: Owner, method: MethodModel, values: list[object]) -> None:
    """Refuse a call under `torch.compile` that needs a gradient, which would silently be lost."""
    if not torch.is_grad_enabled() or not torch.compiler.is_compiling():
        return
    if torch.compiler.is_exporting():  # an exported program records no gradients
        return
    if any(isinstance(value, Tensor) and value.requires_grad for value in tree_leaves(values)):
        operator = owner.methods[method.name].operator
        raise DifferentiationError(
            f"{owner.name}.{method.name}: torch.compile would lose the gradient of an object's "
            "method. Compile under torch.no_grad(), train without torch.compile, or call the "
            f"operator {operator.name}, which has the fields as arguments."
        )


def _refuse_what_changes(owner: Owner, method: MethodModel, read: Value) -> None:
    changing = [name for name in owner.model.mutable if name in read]
    tensors = {f.name for f in owner.model.fields if f.is_tensor or f.is_tensor_list}
    if method.getter in tensors or not changing:
        return
    raise OpsmithError(
        f"{owner.name}.{method.name}: returns a number, and methods change {changing[0]!r}: a "
        "traced program would bake in the current value. Return a tensor "
        '(-> Int64[Tensor, ""]) to use it in a model.'
    )
