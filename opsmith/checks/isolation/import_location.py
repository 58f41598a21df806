"""Source locations of operators, from which another process can import them."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from opsmith.errors import OpsmithError
from opsmith.operators import Operator
from opsmith.operators.adoption.adopted import Specification, all_adopted
from opsmith.operators.core import registry
from opsmith.sources.importing import ImportEndedError, import_again, raised
from opsmith.sources.spec_file import take


class NotLocatedError(OpsmithError):
    """Another process cannot import an equal declaration of the operator; the message says why."""


@dataclass(frozen=True)
class Location:
    """The modules to import for an operator, and the fingerprint of its declaration.

    Attributes:
        name: ``namespace::name``.
        modules: names and files of the modules that declare it and its kernels, in order.
        fingerprint: text that is equal for equal declarations.
        specification: the ``--spec`` declaration of an operator that another library defined;
            `None` for other operators.
    """

    name: str
    modules: tuple[tuple[str, str], ...]
    fingerprint: str
    specification: Specification | None = None

    def to_json(self) -> dict[str, Any]:
        """Convert the location to JSON data."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Location:
        """Create a location from the data of `to_json`."""
        modules = tuple((name, file) for name, file in data["modules"])
        given = data["specification"]
        taken = None
        if given is not None:
            imported = tuple((name, source) for name, source in given["modules"])
            taken = Specification(given["name"], given["declared"], imported)
        return cls(data["name"], modules, data["fingerprint"], taken)


def locate(operator: Operator) -> Location:
    """Find the modules that declare an operator.

    Raises:
        NotLocatedError: the declaration is in no file, as in a notebook.
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
        # The modules that define the operator have to be imported before its declaration.
        names = dict.fromkeys([*(name for name, _ in specification.modules), *names])
    modules = []
    for name in names:
        file = getattr(sys.modules.get(name), "__file__", None)
        if file is None or not Path(file).is_file():
            raise NotLocatedError(f"{operator.name} was not declared in a file ({name})")
        modules.append((name, str(Path(file).resolve())))
    return Location(operator.name, tuple(modules), fingerprint(operator), specification)


def fingerprint(operator: Operator) -> str:
    """Return a text that is equal for equal declarations of an operator."""
    parts = [
        operator.signature.schema(),
        repr(operator.signature.parameters),
        repr(operator.signature.results),
        repr(operator.signature.parallel_dims),
        repr(operator.signature.where),
        *(f"{name} {kernel.where}" for name, kernel in operator.kernels.items()),
        f"{operator.rule.backward is not None} {operator.rule.reference} {len(operator.cases)}",
    ]
    return "\n".join(parts)


def module_of(operator: Operator) -> str:
    """Return the module that declares an operator; the operator's name if it has no reference."""
    return getattr(operator.reference, "__module__", None) or operator.name


def obtain(location: Location) -> Operator:
    """Import the modules that declare an operator, and return the operator.

    Raises:
        NotLocatedError: the modules declare it differently in this process, or not at all.
    """
    for name, file in location.modules:
        try:
            import_again(name, Path(file))
        except (Exception, SystemExit, ImportEndedError) as error:
            raise NotLocatedError(str(raised(file, error))) from error
    if location.specification is not None:
        try:
            take(location.specification)
        except OpsmithError as error:
            raise NotLocatedError(str(error)) from error
    declared = registry.find(location.name)
    # Several overloads with the same name may be adopted.
    adopted = [operator for operator in all_adopted() if operator.name == location.name]
    found = [declared, *adopted] if declared is not None else adopted
    if not found:
        raise NotLocatedError(f"importing its module does not declare {location.name}")
    for operator in found:
        if fingerprint(operator) == location.fingerprint:
            return operator
    raise NotLocatedError(f"importing its module declares {location.name} differently")
