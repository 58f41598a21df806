"""The state of a class that C++ registered with TorchBind: its fields, and objects made of them."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor

from opsmith.errors import DeclarationError
from opsmith.operators.drafting import examples
from opsmith.operators.drafting.subject import KINDS, Argument, Subject, argument_of

#: What gives the state of the object ``original``, where its attributes are not enough.
_FLATTENED = "dict(original.__obj_flatten__())"
_PICKLED = "original.__getstate__()[0]"


@dataclass(frozen=True)
class Class:
    """A class that PyTorch knows.

    Attributes:
        name: ``namespace::Name``.
        fields: what makes an object.
        values: the fields of one object.
        sources: those that an example has, as Python.
        source: an expression of ``original`` that gives its ``state``; empty where the fields are
            attributes.
        reads: an expression of ``original`` or ``state`` for each field; none where nothing can
            be read.
        pickled: what ``__setstate__`` takes, with ``{}`` for each field; empty where the
            constructor takes the fields.
    """

    name: str
    fields: tuple[Argument, ...]
    values: Mapping[str, Any]
    sources: Mapping[str, str]
    source: str = ""
    reads: tuple[str, ...] = ()
    pickled: str = ""

    @property
    def real(self) -> list[Any]:
        """The fields, with a tensor for each `Spec`."""
        holder = Subject(self.name, self.fields, lambda *values: values, has_fake=False)
        return list(holder.made(self.values).values())

    def make(self, values: Sequence[Any]) -> Any:
        """An object with these fields."""
        if not self.pickled:
            return constructor(self.name)(*values)
        names = [f"_{k}" for k in range(len(values))]
        state = eval(self.pickled.format(*names), dict(zip(names, values, strict=True)))
        made: Any = torch.ScriptObject.__new__(torch.ScriptObject)
        made.__setstate__((state, torch_name(self.name)))
        return made

    def read(self, original: Any) -> dict[str, Any]:
        """The fields of an object; none where nothing can be read."""
        state = eval(self.source, {"original": original}) if self.source else None
        scope = {"original": original, "state": state}
        found = [eval(read, scope) for read in self.reads]
        return {one.name: value for one, value in zip(self.fields, found, strict=False)}


def constructor(name: str) -> Any:
    """``torch.classes.namespace.Name``.

    Raises:
        RuntimeError: C++ registered no such class.
    """
    return torch._C._get_custom_class_python_wrapper(*name.split("::"))


def torch_name(name: str) -> str:
    """What PyTorch's type system calls a class."""
    return "__torch__.torch.classes." + name.replace("::", ".")


def shown(type_: Any) -> str:
    """A type as messages say it."""
    return str(type_).replace("__torch__.torch.classes.", "").replace("__torch__.", "")


def schemas_of(name: str) -> dict[str, Any]:
    """The schema of each method that C++ registered, by its name."""
    return {
        schema.name: schema
        for schema in torch._C._jit_get_custom_class_schemas()  # type: ignore[attr-defined]
        if schema.arguments and str(schema.arguments[0].type) == torch_name(name)
    }


def of_class(name: str, written: str | None) -> Class:
    """A class, and an object of it.

    Args:
        name: ``namespace::Name``.
        written: the constructor's arguments as Python; `None` to try some.

    Raises:
        DeclarationError: no object can be made, or its state is nothing that a field can hold.
    """
    schemas = schemas_of(name)
    if "__init__" not in schemas:
        raise DeclarationError(
            f"{name}: has no constructor that Python can call (torch::init), so that no object "
            "can be looked at. Declare a class (opsmith.custom_class) whose methods call it."
        )
    arguments = arguments_of(schemas["__init__"], f"{name}: its constructor", "field")
    subject = Subject(
        name, arguments, lambda *values: _nothing(constructor(name)(*values)), has_fake=False
    )
    subject, values = examples.found(subject, written, name)
    if written is None:
        values = _told_apart(subject, values)
    real = subject.made(values)
    original = constructor(name)(*real.values())
    fields, source, reads = _read_back(original, arguments, real)
    if "__getstate__" in schemas and not _is_all(original, real.values()):
        return _of_state(name, original, schemas["__getstate__"].returns[0].type)
    called = {one.name: field.name for one, field in zip(arguments, fields, strict=True)}
    given = {called[key]: value for key, value in values.items()}
    sources = {called[key]: text for key, text in examples.sources(subject, written).items()}
    return Class(name, fields, given, sources, source, reads)


def arguments_of(schema: Any, owner: str, unnamed: str) -> tuple[Argument, ...]:
    """The arguments after ``self``; where C++ names none, by their places.

    Raises:
        DeclarationError: one is something that no declaration can carry.
    """
    found = []
    for k, one in enumerate(schema.arguments[1:], 1):
        argument = argument_of(one)
        if argument is None:
            raise DeclarationError(
                f"{owner} takes {shown(one.real_type)}, which no declaration can carry"
            )
        has_name = not re.fullmatch(r"_\d+", one.name)
        found.append(argument if has_name else replace(argument, name=f"{unnamed}{k}"))
    return tuple(found)


def same(one: Any, other: Any) -> bool:
    """Whether two values have the same type and elements."""
    if isinstance(one, Tensor) and isinstance(other, Tensor):
        return one.dtype == other.dtype and torch.equal(one, other)
    if isinstance(one, tuple | list) and isinstance(other, tuple | list):
        return len(one) == len(other) and all(map(same, one, other))
    return type(one) is type(other) and not isinstance(one, Tensor) and bool(one == other)


def _nothing(made: Any) -> tuple[()]:
    return ()


def _told_apart(subject: Subject, values: dict[str, Any]) -> dict[str, Any]:
    """The same call with numbers that differ from each other, where the constructor takes them."""
    whole = [one.name for one in subject.arguments if one.kind == "int" and one.required]
    other = {**values, **{name: k for k, name in enumerate(whole, 2)}}
    return other if subject.takes([other])[0] else values


def _named(original: Any) -> Iterator[tuple[str, str, str, Any]]:
    """What an object tells by name: how to read it from which source, its name, and the value."""
    for one in original._properties():
        yield "", f"original.{one.name}", one.name, getattr(original, one.name)
    if original._has_method("__obj_flatten__"):
        for name, value in original.__obj_flatten__():
            yield _FLATTENED, f'state["{name}"]', name, value


def _within(path: str, value: Any) -> Iterator[tuple[str, Any]]:
    """A value, and everything in it."""
    yield path, value
    if isinstance(value, tuple | list):
        for k, one in enumerate(value):
            yield from _within(f"{path}[{k}]", one)


def _read_back(
    original: Any, arguments: Sequence[Argument], values: Mapping[str, Any]
) -> tuple[tuple[Argument, ...], str, tuple[str, ...]]:
    """The constructor's arguments by the names that the object has for them, and how to read them.

    Returns:
        The arguments; what gives the state; and how to read each, or nothing.
    """
    parts = list(_named(original))
    if original._has_method("__getstate__"):
        pickled = _within("state", original.__getstate__()[0])
        parts += [(_PICKLED, read, "", value) for read, value in pickled]
    sources: dict[str, list[str]] = {"": [], _FLATTENED: [], _PICKLED: []}
    fields: list[Argument] = []
    for one in arguments:
        alike = [part for part in parts if same(part[3], values[one.name])]
        name = next((part[2] for part in alike if part[2]), one.name)
        if not re.fullmatch(r"field\d+", one.name) or name in [field.name for field in fields]:
            name = one.name
        fields.append(replace(one, name=name))
        for source, reads in sources.items():
            free = (part[1] for part in alike if part[0] == source and part[1] not in reads)
            reads += [read for read in [next(free, "")] if read]
    for source, reads in sources.items():
        if len(reads) == len(fields):
            return tuple(fields), source, tuple(reads)
    return tuple(fields), "", ()


def _is_all(original: Any, values: Iterable[Any]) -> bool:
    """Whether everything that is pickled is among the constructor's arguments."""
    known = list(values)

    def is_known(state: Any) -> bool:
        if isinstance(state, str) or any(same(state, one) for one in known):
            return True
        return isinstance(state, tuple | list) and bool(state) and all(map(is_known, state))

    return is_known(original.__getstate__()[0])


def _of_state(name: str, original: Any, type_: Any) -> Class:
    """A class whose fields are what is pickled, as its constructor takes something else."""
    fields: list[Argument] = []
    values: list[Any] = []
    reads: list[str] = []
    names = [(value, called) for _, _, called, value in _named(original)]

    def written(path: str, value: Any, type_: Any, key: str) -> str:
        if type_.kind() == "TupleType":
            # A pair like ("weight", tensor) names what it holds.
            key = value[0] if len(value) == 2 and isinstance(value[0], str) else ""
            members = [
                f'"{one}"' if key and one is value[0] else written(f"{path}[{k}]", one, inner, key)
                for k, (one, inner) in enumerate(zip(value, type_.elements(), strict=True))
            ]
            return f"({', '.join(members)}{',' * (len(members) == 1)})"
        optional = re.fullmatch(r"Optional\[(.*)\]", str(type_))
        kind = KINDS.get(optional[1] if optional else str(type_))
        if kind is None:
            raise DeclarationError(
                f"{name}: its state holds {shown(type_)}, which no field can. Declare a class "
                "(opsmith.custom_class) whose fields are tensors, numbers, strings and lists of "
                "them, and call the original in its methods."
            )
        known = next((called for one, called in names if same(one, value)), key)
        if not known.isidentifier() or known in [field.name for field in fields]:
            known = f"field{len(fields) + 1}"
        fields.append(Argument(known, kind, bool(optional)))
        values.append(value)
        reads.append(path)
        return "{}"

    pickled = written("state", original.__getstate__()[0], type_, "")
    given = {one.name: value for one, value in zip(fields, values, strict=True)}
    return Class(name, tuple(fields), given, {}, _PICKLED, tuple(reads), pickled)
