"""The methods of a class that C++ registered with TorchBind, as operators that take its fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from opsmith.errors import DeclarationError
from opsmith.operators.arguments import dtype_name, map_tensors
from opsmith.operators.drafting import examples
from opsmith.operators.drafting.subject import Argument, Subject
from opsmith.operators.drafting.torchbind.state import Class, arguments_of, same

_RETURNED = ("Tensor", "List[Tensor]", "int", "float", "bool")
_CHANGING = ("int", "float", "bool", "tensor")


@dataclass(frozen=True)
class Method:
    """A method that can be declared.

    Attributes:
        name: what it is called.
        own: its own arguments.
        values: them in a call that it takes.
        sources: them as an example has them.
        returns: what it returns, ``"Tensor"``, ``"int"``; nothing, one or several.
        changes: the fields that it changes.
        shares: whether it returns the memory of a field or an argument.
    """

    name: str
    own: tuple[Argument, ...]
    values: Mapping[str, Any]
    sources: Mapping[str, str]
    returns: tuple[str, ...]
    changes: tuple[str, ...]
    shares: bool

    def subject(self, owner: Class, changing: Sequence[str]) -> Subject:
        """The method as an operator: the fields, then its own arguments; tensors come back."""
        count = len(owner.fields)

        def function(*values: Any) -> tuple[Any, ...]:
            returned = getattr(owner.make(values[:count]), self.name)(*values[count:])
            return tuple(one for one in _several(returned) if isinstance(one, Tensor | list))

        # A size cannot follow from a number that a method changes.
        fields = [replace(one, written=one.name in changing) for one in owner.fields]
        name = f"{owner.name}.{self.name}"
        return Subject(name, (*fields, *self.own), function, has_fake=False)


def of_method(owner: Class, schema: Any, written: str | None) -> Method:
    """A method, and a call of it on the object that was found.

    Args:
        owner: the class.
        schema: the method's.
        written: its arguments as Python; `None` to try some.

    Raises:
        DeclarationError: no declaration can say what it takes, returns or does.
    """
    label = f"{owner.name}.{schema.name}"
    own = arguments_of(schema, label, "arg")
    taken = {one.name for one in owner.fields}
    own = tuple(replace(one, name=f"{one.name}_") if one.name in taken else one for one in own)
    returns = _returns(label, schema)
    fields = owner.real

    def call(*values: Any) -> tuple[()]:
        getattr(owner.make(fields), schema.name)(*values)
        return ()

    subject = Subject(label, own, call, has_fake=False)
    try:
        subject, values = examples.found(subject, written, label)
    except examples.NoCallError as error:
        raise DeclarationError(
            f"{label}: no call was found that it takes, of an object with "
            f"{_described(owner.values)}. Give both, as in "
            f'--example "2, torch.ones(2); {schema.name}(torch.rand(2, 3))"; its parameters are '
            f"({', '.join(one.name for one in own)})"
        ) from error
    changes, shares = _observed(owner, fields, schema.name, subject.made(values), label)
    sources = examples.sources(subject, written)
    return Method(schema.name, subject.arguments, values, sources, returns, changes, shares)


def _described(values: Mapping[str, Any]) -> str:
    """The fields of an object in a line."""

    def short(value: Any) -> str:
        if hasattr(value, "shape"):
            return f"{dtype_name(value.dtype)} {tuple(value.shape)}"
        return f"[{', '.join(map(short, value))}]" if isinstance(value, list) else repr(value)

    return ", ".join(f"{key} = {short(value)}" for key, value in values.items()) or "no fields"


def _returns(label: str, schema: Any) -> tuple[str, ...]:
    (returned,) = schema.returns
    word = str(returned.type)
    if word == "NoneType":
        return ()
    several = returned.type.kind() == "TupleType"
    words = tuple(map(str, returned.type.elements())) if several else (word,)
    for one in words:
        if one not in _RETURNED:
            raise DeclarationError(
                f"{label} returns {one}, and a method returns tensors or numbers"
            )
    return words


def _observed(
    owner: Class, fields: Sequence[Any], name: str, arguments: Mapping[str, Any], label: str
) -> tuple[tuple[str, ...], bool]:
    """Which fields a call changed, and whether it returned memory that it was given.

    Raises:
        DeclarationError: it changed something that no declaration can say.
    """
    fields = [map_tensors(one, torch.Tensor.clone) for one in fields]
    given = {key: map_tensors(one, torch.Tensor.clone) for key, one in arguments.items()}
    original = owner.make(fields)
    before = {
        key: map_tensors(one, torch.Tensor.clone) for key, one in owner.read(original).items()
    }
    with torch.no_grad():
        first = getattr(original, name)(*given.values())
        copied = map_tensors(first, torch.Tensor.clone)
        after = owner.read(original)
        again = getattr(original, name)(*given.values())
    changes = tuple(key for key, value in after.items() if not same(value, before[key]))
    for key, value in given.items():
        if not same(value, arguments[key]):
            raise DeclarationError(f"{label} writes into its argument {key!r}, not into a field")
    for field in owner.fields:
        if field.name in changes and (field.kind not in _CHANGING or field.optional):
            raise DeclarationError(
                f"{label} changes {field.name!r}, and what a method can change is a number or a "
                "tensor's elements"
            )
        shapes = [getattr(one[field.name], "shape", None) for one in (before, after) if one]
        if len(set(shapes)) > 1:
            raise DeclarationError(f"{label} changes the shape of {field.name!r}")
    if isinstance(first, list) and not first:
        raise DeclarationError(f"{label} returned an empty list, which says nothing of its tensors")
    if not changes and not same(copied, again):
        raise DeclarationError(
            f"{label} answers otherwise when it is called again, and nothing that can be read of "
            "the object has changed (def_readonly, def_property, def_pickle)"
        )
    return changes, _shares(first, [*fields, *given.values()], label)


def _shares(returned: Any, values: Sequence[Any], label: str) -> bool:
    """Whether a method returned the memory of what it was given.

    Raises:
        DeclarationError: among several results.
    """
    taken = {one.untyped_storage()._cdata for one in values if isinstance(one, Tensor)}
    tensors = [one for one in _several(returned) if isinstance(one, Tensor)]
    shares = any(one.untyped_storage()._cdata in taken for one in tensors)
    if shares and isinstance(returned, tuple):
        raise DeclarationError(f"{label} returns a field or an argument among several results")
    return shares


def _several(returned: Any) -> tuple[Any, ...]:
    if returned is None:
        return ()
    return returned if isinstance(returned, tuple) else (returned,)
