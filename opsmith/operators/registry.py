"""The operators declared in this process, by name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opsmith.errors import OpsmithError

if TYPE_CHECKING:
    from opsmith.operators.operator import Operator

_OPERATORS: dict[str, Operator] = {}


def add(operator: Operator) -> None:
    """Make `operator` the one of its name."""
    # Out and in again, so that iteration is in the order of the latest declarations.
    _OPERATORS.pop(operator.name, None)
    _OPERATORS[operator.name] = operator


def all_operators() -> tuple[Operator, ...]:
    """Every operator, in the order in which they were declared."""
    return tuple(_OPERATORS.values())


def find(name: str) -> Operator | None:
    """The operator called ``namespace::name``, or `None`."""
    return _OPERATORS.get(name)


def get(name: str) -> Operator:
    """The operator called ``namespace::name``.

    Raises:
        OpsmithError: no operator of that name was declared.
    """
    operator = _OPERATORS.get(name)
    if operator is None:
        declared = ", ".join(_OPERATORS) or "none"
        raise OpsmithError(f"no operator {name!r} was declared; declared are: {declared}")
    return operator
