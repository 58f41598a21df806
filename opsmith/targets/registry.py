"""The targets that there are: one for each folder beside this file."""

from __future__ import annotations

import importlib
from functools import cache
from pathlib import Path

from opsmith.errors import OpsmithError
from opsmith.targets.protocol import Target


@cache
def target_names() -> tuple[str, ...]:
    """The names of all targets, available or not."""
    folder = Path(__file__).parent
    return tuple(sorted(path.parent.name for path in folder.glob("*/__init__.py")))


def get_target(name: str) -> Target:
    """The target called `name`.

    Raises:
        OpsmithError: there is none.
    """
    if name not in target_names():
        raise OpsmithError(f"no target {name!r}; there are {', '.join(target_names())}")
    target = importlib.import_module(f"opsmith.targets.{name}").TARGET
    assert isinstance(target, Target) and target.name == name
    return target


def all_targets() -> tuple[Target, ...]:
    """Every target, by name."""
    return tuple(get_target(name) for name in target_names())
