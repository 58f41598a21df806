"""Write packages for Hugging Face's ``kernels``: a folder for PyTorch, and one through tvm-ffi."""

from __future__ import annotations

import base64
import hashlib
import json
import platform as host
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from opsmith.errors import ExportError, OptionError
from opsmith.kernels import HOST
from opsmith.kernels.libraries import prebuilt
from opsmith.system.files import read_json
from opsmith.system.scratch import scratch_folder
from opsmith.targets.exporting.export import export
from opsmith.wheels import building, carried, project
from opsmith.wheels.platforms import find_platform
from opsmith.wheels.project import Project

#: The oldest stable ABI that the libraries need, as ``kernels`` names it.
_ABI = "torch-stable-abi210"


def build_folder(
    source: Path,
    out: Path,
    *,
    platform: str = "native",
    name: str | None = None,
    version: str | None = None,
    **options: Any,
) -> Path:
    """Write a folder that ``kernels.get_local_kernel`` loads, and that its hub stores.

    Arguments and exceptions are those of `build_wheel`; the folder contains the wheel's package.

    Returns:
        The variant's folder, ``out/build/torch-stable-abi210-cpu-x86_64-linux``.
    """
    found = project.read(source, name, version)
    folder = out / "build" / f"{_ABI}-cpu-{find_platform(platform).machine}-linux"
    with scratch_folder("wheel") as work:
        wheel = building.build_wheel(
            source, Path(work), platform=platform, name=name, version=version, **options
        )
        with zipfile.ZipFile(wheel) as archive:
            files = {
                place.removeprefix(f"{found.package}/"): archive.read(place)
                for place in archive.namelist()
                if place.startswith(f"{found.package}/")
            }
    # ``kernels`` imports each build of the package under another name.
    for place, data in files.items():
        if place.endswith(".py") and not place.startswith("_opsmith/"):
            text = carried.relative(data.decode(), Path(place), found.package)
            files[place] = text.encode()
    # The rewritten modules need new digests.
    listing = f"{prebuilt.FOLDER}/{prebuilt.LIST}"
    listed = json.loads(files[listing])
    for module in listed["sources"]:
        listed["sources"][module] = hashlib.sha256(files[module]).hexdigest()
    files[listing] = json.dumps(listed, indent=1).encode()
    _write(folder, found, files)
    return folder


def build_tvm_ffi_folder(
    source: Path,
    out: Path,
    *,
    platform: str = "native",
    name: str | None = None,
    version: str | None = None,
    say: Callable[[str], None] | None = None,
    **options: Any,
) -> Path:
    """Write a folder that ``kernels.get_local_kernel`` loads where PyTorch need not be.

    It contains the functions of `opsmith.export` for ``target="tvm_ffi"``, without the package's
    own Python. Arguments and exceptions are those of `build_wheel`, but for options that choose how
    a wheel is compiled.

    Returns:
        The variant's folder, ``out/build/tvm-ffi01-cpu-x86_64-linux``.

    Raises:
        OptionError: an option is given that this layout does not have.
        ExportError: tvm-ffi cannot call an operator of the package.
    """
    del say  # every operator is in the folder
    given = {**options, "platform": platform != "native"}
    for option in (key for key, value in given.items() if value):
        raise OptionError(
            f"{option}: a folder through tvm-ffi is compiled for this machine as it is. Leave "
            f"{option} out, or take the layout hf."
        )
    found = project.read(source, name, version)
    with scratch_folder("wheel") as work:
        dist = Path(work) / "dist"
        artifact = export(
            found.operators, target="tvm_ffi", out=dist, say=None, package=found.package
        )
        major, minor, *_ = artifact.manifest.versions["apache-tvm-ffi"].split(".")
        package = dist / found.package
        files = {
            path.relative_to(package).as_posix(): path.read_bytes()
            for path in package.rglob("*")
            if path.is_file() and path.suffix != ".pyc"
        }
    folder = out / "build" / f"tvm-ffi{major}{minor}-{HOST}-{host.machine()}-linux"
    _write(folder, found, files)
    return folder


def _write(folder: Path, found: Project, files: dict[str, bytes]) -> None:
    """Write the files and their metadata; files of an earlier build of the package are replaced."""
    digests = {
        place: base64.b64encode(hashlib.sha256(data).digest()).decode()
        for place, data in sorted(files.items())
    }
    build = hashlib.sha256(json.dumps(digests).encode()).hexdigest()[:12]
    license_ = found.table.get("license", "")
    metadata: dict[str, Any] = {
        "id": f"_{found.package}_{HOST}_{build}",
        "name": found.name.lower().replace("_", "-"),
        "version": int(found.version.partition(".")[0]),
        "license": license_ if isinstance(license_, str) else license_.get("text", ""),
        "python-depends": [],
        "backend": {"type": HOST},
        "digest": {"algorithm": "sha256", "files": digests},
    }
    files["metadata.json"] = json.dumps(metadata, indent=1).encode()
    known = read_json(folder / "metadata.json", dict) or {}
    own = {"metadata.json", *known["digest"]["files"]} if "digest" in known else set()
    foreign = sorted(place for place in files.keys() - own if (folder / place).exists())
    if foreign:
        raise ExportError(
            f"{folder} has a file {foreign[0]} that no earlier build of this package wrote, so "
            "nothing was written. Choose another folder with --out."
        )
    for place, data in files.items():
        path = folder / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
