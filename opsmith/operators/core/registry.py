"""The registry of operators declared in this process, and a generic `Registry`."""

from __future__ import annotations

from typing import Generic, TypeVar

from opsmith.errors import DeclarationError, OpsmithError
from opsmith.operators.core.operator import RegisteredOperator
from opsmith.operators.core.source_location import where_written

T = TypeVar("T")


class Registry(Generic[T]):
    """Declared objects by key, in the order of their latest declarations.

    Args:
        what: the noun for one object, for messages.
        done: the verb for registering it, for messages: ``declared``, ``adopted``.
    """

    def __init__(self, what: str, done: str = "declared") -> None:
        self._what = what
        self._done = done
        self._entries: dict[object, T] = {}

    def add(self, key: object, entry: T) -> None:
        """Register `entry` under `key`, in place of an earlier entry."""
        # Remove before adding, so that iteration follows the order of the latest declarations.
        self._entries.pop(key, None)
        self._entries[key] = entry

    def all(self) -> tuple[T, ...]:
        """Return every entry."""
        return tuple(self._entries.values())

    def find(self, key: object) -> T | None:
        """Return the entry of `key`, or `None`."""
        return self._entries.get(key)

    def get(self, key: object) -> T:
        """Return the entry of `key`.

        Raises:
            OpsmithError: the key has no entry; the message lists all keys.
        """
        found = self._entries.get(key)
        if found is None:
            there = ", ".join(map(str, self._entries)) or "none"
            raise OpsmithError(
                f"no {self._what} {str(key)!r} was {self._done}; {self._done} are: {there}"
            )
        return found


_OPERATORS: Registry[RegisteredOperator] = Registry("operator")


def require_latest(operator: RegisteredOperator) -> None:
    """Refuse a declaration that another one of its name has replaced, and that serves no call."""
    latest = find(operator.name)
    if latest is not None and latest is not operator:
        raise DeclarationError(
            f"{operator.name}: register_kernel: another declaration of the same name has replaced "
            f"this one, {where_written(latest.reference)}: register the kernel for that one"
        )


def add(operator: RegisteredOperator) -> None:
    """Register `operator` under its name, in place of an earlier operator."""
    _OPERATORS.add(operator.name, operator)


all_operators = _OPERATORS.all
find = _OPERATORS.find


def get(name: str) -> RegisteredOperator:
    """Return the operator called ``namespace::name``.

    Raises:
        OpsmithError: no operator of that name was declared.
    """
    return _OPERATORS.get(name)
