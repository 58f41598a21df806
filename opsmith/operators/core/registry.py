"""What was declared in this process: operators by name, and, kept likewise, whatever else is."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, TypeVar

from opsmith.errors import OpsmithError

if TYPE_CHECKING:
    from opsmith.operators.core.operator import RegisteredOperator

T = TypeVar("T")


class Registry(Generic[T]):
    """Declared things by their keys, in the order of the latest declarations.

    Args:
        what: what each is called, for messages.
        done: what was done to it: ``declared``, ``adopted``.
    """

    def __init__(self, what: str, done: str = "declared") -> None:
        self._what = what
        self._done = done
        self._entries: dict[Any, T] = {}

    def add(self, key: Any, entry: T) -> None:
        """Make `entry` the one of its key."""
        # Out and in again, so that iteration is in the order of the latest declarations.
        self._entries.pop(key, None)
        self._entries[key] = entry

    def all(self) -> tuple[T, ...]:
        """Every entry."""
        return tuple(self._entries.values())

    def find(self, key: Any) -> T | None:
        """The entry of `key`, or `None`."""
        return self._entries.get(key)

    def get(self, key: Any) -> T:
        """The entry of `key`.

        Raises:
            OpsmithError: there is none; says which there are.
        """
        found = self._entries.get(key)
        if found is None:
            there = ", ".join(map(str, self._entries)) or "none"
            raise OpsmithError(
                f"no {self._what} {str(key)!r} was {self._done}; {self._done} are: {there}"
            )
        return found


_OPERATORS: Registry[RegisteredOperator] = Registry("operator")


def add(operator: RegisteredOperator) -> None:
    """Make `operator` the one of its name."""
    _OPERATORS.add(operator.name, operator)


def all_operators() -> tuple[RegisteredOperator, ...]:
    """Every operator, in the order in which they were declared."""
    return _OPERATORS.all()


def find(name: str) -> RegisteredOperator | None:
    """The operator called ``namespace::name``, or `None`."""
    return _OPERATORS.find(name)


def get(name: str) -> RegisteredOperator:
    """The operator called ``namespace::name``.

    Raises:
        OpsmithError: no operator of that name was declared.
    """
    return _OPERATORS.get(name)
