"""In an installed package, in place of ``dataclasses``, for what opsmith's modules use of it.

That one compiles six functions for each class, which takes half of the time that importing an
installed package takes.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from dataclasses import FrozenInstanceError
from typing import Any

__all__ = ["dataclass", "field", "replace"]

_MISSING: Any = object()


class _Field:
    def __init__(
        self,
        *,
        default: Any = _MISSING,
        default_factory: Any = _MISSING,
        init: bool = True,
        repr: bool = True,
        compare: bool = True,
        kw_only: bool = False,
    ) -> None:
        self.default, self.default_factory = default, default_factory
        self.init, self.repr, self.compare, self.kw_only = init, repr, compare, kw_only


field = _Field


def dataclass(cls: Any = None, /, *, frozen: bool = False) -> Any:
    """Give a class what its annotations say, as ``dataclasses.dataclass`` does."""
    if cls is None:
        return functools.partial(dataclass, frozen=frozen)
    fields: dict[str, _Field] = dict(getattr(cls, "_fields", {}))
    for name, annotation in inspect.get_annotations(cls).items():
        if annotation.startswith("ClassVar"):
            continue
        given = vars(cls).get(name, _MISSING)
        found = given if isinstance(given, _Field) else _Field(default=given)
        fields[name] = found
        if found.default is not _MISSING:
            setattr(cls, name, found.default)
        elif isinstance(given, _Field):
            delattr(cls, name)
    cls._fields = fields
    positional = tuple(name for name, one in fields.items() if one.init and not one.kw_only)
    compared = tuple(name for name, one in fields.items() if one.compare)
    shown = tuple(name for name, one in fields.items() if one.repr)
    methods: dict[str, Any] = {
        "__match_args__": positional,
        "__init__": _init(fields, positional),
        "__repr__": lambda self: (
            f"{type(self).__qualname__}"
            f"({', '.join(f'{name}={getattr(self, name)!r}' for name in shown)})"
        ),
        "__eq__": lambda self, other: (
            _values(self, compared) == _values(other, compared)
            if type(self) is type(other)
            else NotImplemented
        ),
        "__hash__": (lambda self: hash(_values(self, compared))) if frozen else None,
    }
    if frozen:
        methods["__setattr__"] = methods["__delattr__"] = _refuse
    # A class that has __eq__ gets a __hash__ of None from Python.
    own = {name for name, value in vars(cls).items() if name != "__hash__" or value is not None}
    for name, method in methods.items():
        if name not in own:
            setattr(cls, name, method)
    return cls


def replace(instance: Any, /, **changes: Any) -> Any:
    """A copy with other values in some fields, as ``dataclasses.replace`` gives it."""
    kept = {name: getattr(instance, name) for name, one in instance._fields.items() if one.init}
    return type(instance)(**{**kept, **changes})


def _init(fields: dict[str, _Field], positional: tuple[str, ...]) -> Callable[..., None]:
    accepted = {name for name, one in fields.items() if one.init}
    defaults = {name: one.default for name, one in fields.items() if one.default is not _MISSING}
    factories = {
        name: one.default_factory
        for name, one in fields.items()
        if one.default_factory is not _MISSING
    }
    required = accepted - defaults.keys() - factories.keys()

    def __init__(self: Any, *args: Any, **kwargs: Any) -> None:
        values = vars(self)
        values.update(zip(positional, args, strict=False))
        if len(args) > len(positional) or (
            kwargs and not kwargs.keys() <= accepted - values.keys()
        ):
            wrong = [name for name in kwargs if name not in accepted or name in values]
            raise TypeError(f"{type(self).__name__}() does not take {wrong or args[len(values) :]}")
        values.update(kwargs)
        if len(values) < len(fields):
            if missing := required - values.keys():
                raise TypeError(f"{type(self).__name__}() misses {min(missing)!r}")
            for name, default in defaults.items():
                values.setdefault(name, default)
            for name, factory in factories.items():
                if name not in values:
                    values[name] = factory()
        if hasattr(self, "__post_init__"):
            self.__post_init__()

    return __init__


def _values(instance: Any, names: tuple[str, ...]) -> tuple[Any, ...]:
    return tuple([getattr(instance, name) for name in names])


def _refuse(instance: Any, name: str, value: Any = None) -> None:
    del value
    raise FrozenInstanceError(f"{type(instance).__name__}.{name} cannot be changed")
