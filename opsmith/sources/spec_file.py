"""Test operators of other libraries against a declaration in a separate spec file."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence

from opsmith.compat.torch_ops import OpOverload
from opsmith.errors import DeclarationError, LoadError
from opsmith.operators.adoption.adopt import adopt_as, overload_of
from opsmith.operators.adoption.adopted import AdoptedOperator, Specification, find_adopted
from opsmith.operators.core import registry
from opsmith.operators.core.operator import Operator
from opsmith.sources.importing import import_module, import_operators


def is_name(text: str) -> bool:
    """Return whether a text names an operator, and not a file, a module or a file's operator."""
    namespace, separator, _ = text.partition("::")
    return bool(separator) and namespace.isidentifier()


def specified(name: str, spec: str, modules: Sequence[str] = ()) -> Operator:
    """Return an operator of PyTorch with the declaration, reference and cases of a spec file.

    The spec declares an operator of the same short name (``@opsmith.op("spec::nms")``), or only
    one operator, or adopts the operator (``@opsmith.adopt("torchvision::nms")``).

    Args:
        name: the operator: ``torchvision::nms``; with an overload: ``aten::add.Tensor``.
        spec: the file or module with the declaration.
        modules: names of modules, or files, to import first so that the operator exists. By
            default, the package with the name of the operator's namespace, if there is one.
    """
    imported = imported_for(name, modules)
    overload = _overload_of(name)
    operators = import_operators(spec).operators
    adopted = find_adopted(overload)
    if adopted is not None and adopted in operators:
        adopted.specification = Specification(name, "", imported)
        return adopted
    declared = _fitting(name, spec, operators)
    return take(Specification(name, declared.name, imported))


def imported_for(name: str, modules: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Import what defines an operator: `modules`, or the package that its namespace names.

    Returns:
        The name of each imported module, and the user's name for it.
    """
    imported = imported_before(name, modules)
    _overload_of(name)
    return imported


def imported_before(name: str, modules: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """Import the modules like `imported_for`, without looking up the operator."""
    wanted = list(modules) or _package_of(name)
    return tuple((import_module(module).__name__, module) for module in wanted)


def _overload_of(name: str) -> OpOverload:
    try:
        return overload_of(name)
    except DeclarationError as error:
        raise LoadError(f"{error} (--import MODULE)") from error


def take(specification: Specification) -> Operator:
    """Give an operator the declaration of another operator of this process.

    Raises:
        LoadError: the other operator was not declared.
        DeclarationError: as for `specified`.
    """
    overload = overload_of(specification.name)
    if not specification.declared:
        operator = find_adopted(overload)
    else:
        declared = registry.find(specification.declared)
        operator = adopt_as(overload, declared) if declared is not None else None
    if operator is None:
        raise LoadError(f"{specification.name} is not declared")
    operator.specification = specification
    return operator


def _package_of(name: str) -> list[str]:
    namespace = name.partition("::")[0]
    if namespace == "aten" or not namespace.isidentifier():
        return []
    return [namespace] if importlib.util.find_spec(namespace) is not None else []


def _fitting(name: str, spec: str, operators: Sequence[Operator]) -> Operator:
    short = name.partition("::")[2].partition(".")[0]
    own = [one for one in operators if not isinstance(one, AdoptedOperator)]
    alike = [one for one in own if one.signature.name == short] or own
    if len(alike) != 1:
        # Leave out operators that received a declaration of the spec, since the spec does not
        # declare them.
        there = ", ".join(
            one.name
            for one in operators
            if not (isinstance(one, AdoptedOperator) and one.specification)
        )
        raise LoadError(
            f"{spec} has no declaration for {name}: it declares {there}. Call one of them {short!r}"
            f', or adopt the operator there: @opsmith.adopt("{name}")'
        )
    return alike[0]
