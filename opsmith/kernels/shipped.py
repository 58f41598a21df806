"""Libraries that came with an installed package, so that nothing is compiled where it is used.

A wheel's package has a list of them beside opsmith's modules, which says of each library what it
was compiled from, for which machine, and its digest.
"""

from __future__ import annotations

import json
import platform
from pathlib import Path

from opsmith.errors import BuildError, MissingError
from opsmith.kernels import machine
from opsmith.kernels.files import digest

FOLDER = "_opsmith"
LIST = "libraries.json"


def find(path: Path, qualname: str, device: str) -> Path | None:
    """The library of a kernel that came with the package of its source.

    Args:
        path: the kernel's source.
        qualname: the operator's name.
        device: the device type.

    Returns:
        The one for the highest level that this processor has; `None` where the source belongs to no
        such package, or was changed since.

    Raises:
        MissingError: none of the package's libraries runs on this machine.
        BuildError: the file is damaged.
    """
    package = _package_of(path)
    if package is None:
        return None
    listed = json.loads((package / FOLDER / LIST).read_text())
    of_kernel = [
        one
        for one in listed["libraries"]
        if (package / one["source"], one["operator"], one["device"]) == (path, qualname, device)
    ]
    if not of_kernel or listed["sources"].get(of_kernel[0]["source"]) != digest(path):
        return None
    what = f"{qualname} ({device}): {package.name}"
    here = [one for one in of_kernel if one["machine"] == platform.machine()]
    for one in sorted(here, key=lambda one: len(one["needs"]), reverse=True):
        if not machine.lacking(one["needs"]):
            library = package / FOLDER / one["file"]
            if digest(library) != one["sha256"]:
                raise BuildError(f"{what}: {library} is damaged. Install the package again.")
            return library
    there = ", ".join(sorted({one["level"] for one in of_kernel}))
    least = min(here, key=lambda one: len(one["needs"]), default=None)
    without = f" without {', '.join(machine.lacking(least['needs']))}" if least else ""
    raise MissingError(
        f"{what} has libraries for {there}, and this machine is {platform.machine()}{without}. "
        "Install a wheel for it, or build one."
    )


def _package_of(path: Path) -> Path | None:
    """The installed package that a file lies in, if libraries came with it."""
    for folder in path.parents:
        if (folder / FOLDER / LIST).is_file():
            return folder
        if not (folder / "__init__.py").exists() and folder != path.parent:
            return None
    return None
