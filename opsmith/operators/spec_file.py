"""Operators that know nothing of opsmith, under test against a declaration in a file of its own."""

from __future__ import annotations

import importlib.util
from collections.abc import Sequence

from opsmith.compat.torch_ops import OpOverload
from opsmith.errors import DeclarationError
from opsmith.operators.adopt import adopt_as, overload_of
from opsmith.operators.adopted import AdoptedOperator, Specification, find_adopted
from opsmith.operators.core import registry
from opsmith.operators.core.operator import Operator
from opsmith.operators.importing import LoadError, import_module, import_operators


def is_name(text: str) -> bool:
    """Whether a text names an operator, and not a file or a module, or an operator of these."""
    namespace, separator, _ = text.partition("::")
    return bool(separator) and namespace.isidentifier()


def specified(name: str, spec: str, modules: Sequence[str] = ()) -> Operator:
    """An operator that PyTorch knows, with the declaration, reference and cases of a spec.

    The spec declares an operator of the same short name (``@opsmith.op("spec::nms")``), or only
    one, or adopts it (``@opsmith.adopt("torchvision::nms")``).

    Args:
        name: the operator: ``torchvision::nms``; with an overload: ``aten::add.Tensor``.
        spec: the file, or module, that declares it.
        modules: what to import before, so that the operator is there: names of modules, or files.
            Where none is given, and a package has the name of its namespace, that.

    Raises:
        LoadError: a module or the spec cannot be imported, or the spec declares nothing that fits.
        DeclarationError: there is no such operator, or it is declared otherwise than it is; shows
            both schemas.
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
    """Import what defines an operator: the modules, or else the package that its namespace names.

    Returns:
        Each module by its name, and as it was named.

    Raises:
        LoadError: one cannot be imported, or PyTorch knows no such operator then.
    """
    imported = imported_before(name, modules)
    _overload_of(name)
    return imported


def imported_before(name: str, modules: Sequence[str]) -> tuple[tuple[str, str], ...]:
    """The same, whatever it is that they define.

    Raises:
        LoadError: a module cannot be imported.
    """
    wanted = list(modules) or _package_of(name)
    return tuple((import_module(module).__name__, module) for module in wanted)


def _overload_of(name: str) -> OpOverload:
    try:
        return overload_of(name)
    except DeclarationError as error:
        raise LoadError(f"{error} (--import MODULE)") from error


def take(specification: Specification) -> Operator:
    """Give an operator the declaration of another that was declared in this process.

    Raises:
        LoadError: the other was not declared.
        DeclarationError: see `specified`.
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
        # Those that took a declaration of the spec in this process are not declared there.
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
