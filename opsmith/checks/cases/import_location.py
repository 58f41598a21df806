"""Where an operator was declared, so that another process can declare it again."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from opsmith.errors import OpsmithError
from opsmith.operators import Operator
from opsmith.operators.adopted import Specification, all_adopted
from opsmith.operators.core import registry
from opsmith.operators.importing import LoadError, import_again
from opsmith.operators.spec_file import take


class NotLocatedError(OpsmithError):
    """Another process cannot declare the operator as it is here; says why."""


@dataclass(frozen=True)
class Location:
    """What to import to have an operator, and what it must look like then.

    Attributes:
        name: ``namespace::name``.
        modules: names and files of the modules that declare it and its kernels, in order.
        fingerprint: equal if the same was declared.
        specification: how an operator that others defined got its declaration, if not by itself.
    """

    name: str
    modules: tuple[tuple[str, str], ...]
    fingerprint: str
    specification: Specification | None = None

    def to_json(self) -> dict[str, Any]:
        """As plain data."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Location:
        """What `to_json` gave."""
        modules = tuple((name, file) for name, file in data["modules"])
        given = data["specification"]
        taken = None
        if given is not None:
            imported = tuple((name, source) for name, source in given["modules"])
            taken = Specification(given["name"], given["declared"], imported)
        return cls(data["name"], modules, data["fingerprint"], taken)


def locate(operator: Operator) -> Location:
    """Find out where an operator was declared.

    Raises:
        NotLocatedError: in no file, as in a notebook.
    """
    functions = [
        operator.reference,
        *(getattr(kernel, "function", None) for kernel in operator.kernels.values()),
        operator.rule.backward,
        operator.rule.setup_context,
        operator.written_fake,
        *operator.cases,
    ]
    names = dict.fromkeys(
        function.__module__ for function in functions if getattr(function, "__module__", None)
    )
    specification = getattr(operator, "specification", None)
    if specification is not None:
        # What defines the operator comes before what declares it.
        names = dict.fromkeys([*(name for name, _ in specification.modules), *names])
    modules = []
    for name in names:
        file = getattr(sys.modules.get(name), "__file__", None)
        if file is None or not Path(file).is_file():
            raise NotLocatedError(f"{operator.name} was not declared in a file ({name})")
        modules.append((name, str(Path(file).resolve())))
    return Location(operator.name, tuple(modules), fingerprint(operator), specification)


def fingerprint(operator: Operator) -> str:
    """What two declarations of one operator have in common if they are the same."""
    parts = [
        operator.signature.schema(),
        repr(operator.signature.parameters),
        repr(operator.signature.results),
        repr(operator.signature.parallel_dims),
        *(f"{name} {kernel.where}" for name, kernel in operator.kernels.items()),
        f"{operator.rule.backward is not None} {operator.rule.reference} {len(operator.cases)}",
    ]
    return "\n".join(parts)


def module_of(operator: Operator) -> str:
    """The name of the module that declares an operator; its own where no function is there."""
    return getattr(operator.reference, "__module__", None) or operator.name


def obtain(location: Location) -> Operator:
    """Import what declares an operator, and return it.

    Raises:
        NotLocatedError: the modules, imported here, declare it differently or not at all.
    """
    for name, file in location.modules:
        try:
            import_again(name, Path(file))
        except LoadError as error:
            raise NotLocatedError(str(error)) from error
    if location.specification is not None:
        try:
            take(location.specification)
        except OpsmithError as error:
            raise NotLocatedError(str(error)) from error
    declared = registry.find(location.name)
    # Several overloads of one name may be adopted.
    adopted = [operator for operator in all_adopted() if operator.name == location.name]
    found = [declared, *adopted] if declared is not None else adopted
    if not found:
        raise NotLocatedError(f"importing its module does not declare {location.name}")
    for operator in found:
        if fingerprint(operator) == location.fingerprint:
            return operator
    raise NotLocatedError(f"importing its module declares {location.name} differently")
