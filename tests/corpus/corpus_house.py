"""Gather the right operators that this project has already: gallery, examples, twins of faults.

Each has a label, as those of PyTorch have: ``gallery/bev::bev_pool_v2``.
"""

from __future__ import annotations

import functools
import importlib
import sys
from collections.abc import Callable
from pathlib import Path

from opsmith import Operator
from opsmith.sources.importing import import_all

ROOT = Path(__file__).parents[2]


def gallery() -> list[Operator]:
    """Return the operators of the gallery; those of a kernel for NPUs alone are left out."""
    folders = sorted(one for one in (ROOT / "gallery").iterdir() if one.name != "add_custom")
    files = [folder / f"{folder.name}.py" for folder in folders]
    return import_all([str(file) for file in files if file.is_file()])


def today() -> list[Operator]:
    """Return today's operators, among the examples."""
    return import_all(list(map(str, sorted((ROOT / "examples/todays_operators").glob("*.py")))))


def twins() -> list[Operator]:
    """Return the right twins of the planted faults in Python and C++."""
    _reach("tests/faults")
    return list(dict.fromkeys(pair.right for pair in importlib.import_module("run").pairs()))


def sound() -> list[Operator]:
    """Return the strange right operators of the tests."""
    _reach("tests/checks")
    names = ("sound", "sound_numbers", "sound_shapes", "sound_native", "sound_kinds")
    found = [one for name in names for one in importlib.import_module(name).OPERATORS]
    return list(dict.fromkeys(found))


def _reach(folder: str) -> None:
    sys.path[:0] = [str(ROOT), str(ROOT / folder)]


KINDS: dict[str, Callable[[], list[Operator]]] = {
    "gallery": gallery,
    "today": today,
    "twin": twins,
    "sound": sound,
}


@functools.cache
def operators(kind: str) -> dict[str, Operator]:
    """Return the operators of a kind by their labels."""
    return {f"{kind}/{one.name}": one for one in KINDS[kind]()}
