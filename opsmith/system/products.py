"""Find what the core must not import: products, and what other packages add by entry points."""

from __future__ import annotations

import importlib
import warnings
from collections.abc import Collection
from types import ModuleType

from opsmith.errors import MissingDependencyError
from opsmith.untyped import Untyped


def import_product(module: str, what: str) -> ModuleType:
    """Import a module of a product, which an installation may lack, and `what` needs.

    Raises:
        MissingDependencyError: the product is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise absent(error, what) from error


def absent(error: ModuleNotFoundError, what: str) -> Exception:
    """Return the error that says which product `what` lacks; the same error for other modules."""
    name = error.name or ""
    if name.partition(".")[0] not in ("opsmith", "emulators"):
        return error
    return MissingDependencyError(
        f"{what} needs {name}, which is not installed. Get it: pip install opsmith"
    )


def from_other_packages(
    group: str, noun: str, kind: type, taken: Collection[str] = ()
) -> tuple[dict[str, Untyped], dict[str, str]]:
    """Return what other packages register by entry points; warn of what cannot be used.

    Args:
        group: the group of entry points; each is ``name = "module:OBJECT"``.
        noun: what an entry point registers, for messages.
        kind: the class of the objects. An object that has a name has the entry point's.
        taken: the names that opsmith's own objects have.

    Returns:
        The objects by name; and why others cannot be used, by name.
    """
    from importlib import metadata

    found: dict[str, object] = {}
    broken: dict[str, str] = {}
    for point in metadata.entry_points(group=group):
        try:
            value: object = point.load()
            problem = ""
            if point.name in taken or point.name in found:
                problem = "there is another of this name"
            elif not isinstance(value, kind):
                problem = f"{point.value} has type {type(value).__name__}, expected {kind.__name__}"
            elif (own := getattr(value, "name", point.name)) != point.name:
                problem = f"{point.value} has the name {own!r}"
        except Exception as error:
            problem = f"importing {point.value} raised {type(error).__name__}: {error}"
        if problem:
            where = f" of the package {point.dist.name!r}" if point.dist is not None else ""
            broken[point.name] = f"the {noun} {point.name!r}{where} cannot be used: {problem}"
            warnings.warn(broken[point.name], stacklevel=3)
        else:
            found[point.name] = value
    return found, broken
