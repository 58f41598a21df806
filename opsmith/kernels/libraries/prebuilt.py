"""Libraries in installed packages, which need no compiler on the user's machine.

The package of a wheel has a list of its libraries beside opsmith's modules. For each library, the
list has the sources that it was compiled from, the machine that it is for, and its digest.
"""

from __future__ import annotations

import ctypes
import json
import platform
from collections.abc import Mapping, Sequence
from pathlib import Path

from opsmith.errors import BuildError, MissingDependencyError
from opsmith.system import machine
from opsmith.system.files import digest
from opsmith.untyped import Json

FOLDER = "_opsmith"
LIST = "libraries.json"
#: The folders `FOLDER` in the installed packages whose operators opsmith serves in this process.
served: list[Path] = []


def find(path: Path, qualname: str, device: str) -> Path | None:
    """Return the library of a kernel in the package of its source.

    Args:
        path: the kernel's source.
        qualname: the operator's name.
        device: the device type.

    Returns:
        The library for the highest level that this processor supports; `None` if the source is in
        no such package, or was changed since.

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
            library: Path = package / FOLDER / one["file"]
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


def listed(path: Path, qualname: str, device: str) -> list[Mapping[str, Json]]:
    """Return the list's entries for the libraries of a kernel.

    The arguments are those of `find`. The result is empty if the source is in no such package, or
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


def gates(folder: Path) -> list[Mapping[str, object]]:
    """Return the list's entries for the gates of a package.

    Args:
        folder: the folder of opsmith's modules in the package.
    """
    gates: list[Mapping[str, object]] = json.loads((folder / LIST).read_text())["gates"]
    return gates


def open_gates(folder: Path, gates: Mapping[str, Json]) -> ctypes.CDLL:
    """Load a library of gates from a package.

    Args:
        folder: the folder of opsmith's modules in the package.
        gates: the entry of the library, as in the result of `gates`.

    Raises:
        OSError: the file is damaged, or does not load.
    """
    path = folder / gates["file"]
    if digest(path) != gates["sha256"]:
        raise OSError(f"{path} is damaged")
    return ctypes.CDLL(str(path))


def release_of(version: str) -> str:
    """Return the release of a version of PyTorch; gates fit all builds of a release.

    Args:
        version: PyTorch's version, ``2.13.0+cu130``. A version that is not a release is returned
            whole.
    """
    release = version.partition("+")[0]
    return release if release.replace(".", "").isdigit() else version


def not_compiled_for(architectures: Sequence[int], gpus: Sequence[str]) -> list[str]:
    """Return the GPUs that code without PTX does not run on.

    Such code runs on GPUs of the same generation that are not older.

    Args:
        architectures: the architectures that it was compiled for, 90 for sm_90.
        gpus: this machine's, as `Device.architectures` returns them.
    """
    numbers = {gpu: int(gpu.removeprefix("sm_")) for gpu in gpus}
    return [
        gpu
        for gpu, number in numbers.items()
        if not any(one // 10 == number // 10 and one <= number for one in architectures)
    ]


def _package_of(path: Path) -> Path | None:
    """Return the installed package that contains a file, if the package has libraries."""
    for folder in path.parents:
        if (folder / FOLDER / LIST).is_file():
            return folder
        if not (folder / "__init__.py").exists() and folder != path.parent:
            return None
    return None
