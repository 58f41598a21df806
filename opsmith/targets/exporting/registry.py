"""Find the targets: folders of `opsmith.targets`, and entry points of other packages."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from opsmith.errors import MissingDependencyError, OpsmithError, UnknownTargetError, no_such
from opsmith.system.products import from_other_packages, import_product
from opsmith.targets.exporting.protocol import Target

GROUP = "opsmith.targets"
"""The group of entry points that registers another package's targets: ``name = "module:TARGET"``.
"""


@cache
def _found() -> tuple[dict[str, Target], dict[str, str]]:
    """Return all usable targets by name, and why the others cannot be used."""
    found: dict[str, Target] = {}
    incomplete: dict[str, str] = {}
    for path in sorted(Path(__file__).parents[1].glob("*/__init__.py")):
        name = path.parent.name
        try:
            module = import_product(f"opsmith.targets.{name}", f"the target {name!r}")
        except MissingDependencyError as error:
            incomplete[name] = str(error)
            continue
        target = getattr(module, "TARGET", None)
        if target is not None:
            assert isinstance(target, Target) and target.name == name
            found[name] = target
    others, broken = from_other_packages(GROUP, "target", Target, found)
    return {**found, **others}, {**incomplete, **broken}


def target_names() -> tuple[str, ...]:
    """Return the names of all targets, available or not, in alphabetical order."""
    return tuple(sorted(_found()[0]))


def get_target(name: str) -> Target:
    """Return the target called `name`.

    Raises:
        UnknownTargetError: no target has this name.
        OpsmithError: the target cannot be used.
    """
    found, broken = _found()
    if name in found:
        return found[name]
    if name in broken:
        raise OpsmithError(broken[name])
    raise UnknownTargetError(no_such("target", name, target_names()))


def all_targets() -> tuple[Target, ...]:
    """Return every target, ordered by name."""
    return tuple(get_target(name) for name in target_names())


def broken_targets() -> dict[str, str]:
    """Return why targets cannot be used, by the target's name."""
    return dict(_found()[1])
