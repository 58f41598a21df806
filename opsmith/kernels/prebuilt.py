"""Libraries that came with an installed package, so that nothing is compiled where it is used.

A wheel's package has a list of them beside opsmith's modules, which says of each library what it
was compiled from, for which machine, and its digest.
"""

from __future__ import annotations

import ctypes
import json
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from opsmith.errors import BuildError, MissingDependencyError
from opsmith.kernels.build import machine
from opsmith.kernels.build.files import digest

FOLDER = "_opsmith"
LIST = "libraries.json"
#: The folders of that name in the installed packages whose operators opsmith serves here.
served: list[Path] = []


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
        MissingDependencyError: none of the package's libraries runs on this machine.
        BuildError: the file is damaged.
    """
    package = _package_of(path)
    of_kernel = listed(path, qualname, device)
    if package is None or not of_kernel:
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
    raise MissingDependencyError(
        f"{what} has libraries for {there}, and this machine is {platform.machine()}{without}. "
        "Install a wheel for it, or build one."
    )


def listed(path: Path, qualname: str, device: str) -> list[Mapping[str, Any]]:
    """What the package of a kernel's source says of each of its libraries.

    The arguments are those of `find`. There is none where the source belongs to no such package, or
    was changed since.
    """
    package = _package_of(path)
    if package is None:
        return []
    everything = json.loads((package / FOLDER / LIST).read_text())
    digests = everything["sources"]
    found = [
        one
        for one in everything["libraries"]
        if (package / one["source"], one["operator"], one["device"]) == (path, qualname, device)
    ]
    places = {place for one in found for place in (one["source"], *one.get("further", ()))}
    unchanged = all(digests.get(place) == digest(package / place) for place in places)
    return found if unchanged else []


def gates(folder: Path) -> list[Mapping[str, Any]]:
    """What a package says of each of its gates.

    Args:
        folder: of opsmith's modules in it.
    """
    return json.loads((folder / LIST).read_text())["gates"]


def open_gates(folder: Path, gates: Mapping[str, Any]) -> ctypes.CDLL:
    """Load gates that a package has.

    Args:
        folder: of opsmith's modules in it.
        gates: what it says of them.

    Raises:
        OSError: the file is damaged, or does not load.
    """
    path = folder / gates["file"]
    if digest(path) != gates["sha256"]:
        raise OSError(f"{path} is damaged")
    return ctypes.CDLL(str(path))


def release_of(version: str) -> str:
    """What gates are for of a version of PyTorch: builds of one release have the same interface.

    Args:
        version: as PyTorch says it, ``2.13.0+cu130``; of what is no release it is all that counts.
    """
    release = version.partition("+")[0]
    return release if release.replace(".", "").isdigit() else version


def not_compiled_for(architectures: Sequence[int], gpus: Sequence[str]) -> list[str]:
    """The GPUs that code without PTX does not run on: it runs on later ones of its generation.

    Args:
        architectures: what it was compiled for, 90 for sm_90.
        gpus: as `Device.architectures` gives them.
    """
    numbers = {gpu: int(gpu.removeprefix("sm_")) for gpu in gpus}
    return [
        gpu
        for gpu, number in numbers.items()
        if not any(one // 10 == number // 10 and one <= number for one in architectures)
    ]


def _package_of(path: Path) -> Path | None:
    """The installed package that a file lies in, if libraries came with it."""
    for folder in path.parents:
        if (folder / FOLDER / LIST).is_file():
            return folder
        if not (folder / "__init__.py").exists() and folder != path.parent:
            return None
    return None
