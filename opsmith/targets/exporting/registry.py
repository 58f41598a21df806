"""Find the targets: folders of `opsmith.targets`, and entry points of other packages."""

from __future__ import annotations

import importlib
import warnings
from dataclasses import dataclass, field
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

from opsmith.errors import OpsmithError, UnknownTargetError, no_such
from opsmith.targets.exporting.protocol import Target

GROUP = "opsmith.targets"
"""The group of entry points that registers another package's targets: ``name = "module:TARGET"``.
"""


@dataclass(frozen=True)
class _FoundTargets:
    """The targets that were found.

    Attributes:
        targets: usable targets by name.
        broken: why a target of another package cannot be used, by the target's name.
    """

    targets: dict[str, Target] = field(default_factory=dict)
    broken: dict[str, str] = field(default_factory=dict)


@cache
def _found() -> _FoundTargets:
    found = _FoundTargets()
    for path in sorted(Path(__file__).parents[1].glob("*/__init__.py")):
        module = importlib.import_module(f"opsmith.targets.{path.parent.name}")
        target = getattr(module, "TARGET", None)
        if target is not None:
            assert isinstance(target, Target) and target.name == path.parent.name
            found.targets[target.name] = target
    for point in metadata.entry_points(group=GROUP):
        problem = _load(point, found.targets)
        if problem is not None:
            where = f" of the package {point.dist.name!r}" if point.dist is not None else ""
            found.broken[point.name] = f"the target {point.name!r}{where} cannot be used: {problem}"
            warnings.warn(found.broken[point.name], stacklevel=2)
    return found


def _load(point: metadata.EntryPoint, targets: dict[str, Target]) -> str | None:
    """Add another package's target to `targets`; return the problem if that fails, else `None`."""
    if point.name in targets:
        return "there is another of this name"
    try:
        target: Any = point.load()
    except Exception as error:
        return f"importing {point.value} raised {type(error).__name__}: {error}"
    if not isinstance(target, Target):
        return f"{point.value} is not an opsmith.targets.Target"
    if target.name != point.name:
        return f"{point.value} has the name {target.name!r}"
    targets[target.name] = target
    return None


def target_names() -> tuple[str, ...]:
    """Return the names of all targets, available or not, in alphabetical order."""
    return tuple(sorted(_found().targets))


def get_target(name: str) -> Target:
    """Return the target called `name`.

    Raises:
        UnknownTargetError: no target has this name.
        OpsmithError: the target belongs to another package, and cannot be used.
    """
    found = _found()
    if name in found.targets:
        return found.targets[name]
    if name in found.broken:
        raise OpsmithError(found.broken[name])
    raise UnknownTargetError(no_such("target", name, target_names()))


def all_targets() -> tuple[Target, ...]:
    """Return every target, ordered by name."""
    return tuple(get_target(name) for name in target_names())


def broken_targets() -> dict[str, str]:
    """Return why targets of other packages cannot be used, by the target's name."""
    return dict(_found().broken)
