"""A build backend by PEP 517 and PEP 660, for ``pip install .``, ``python -m build`` and others.

In a ``pyproject.toml``::

    [build-system]
    requires = ["opsmith[wheel]"]
    build-backend = "opsmith.wheels.backend"

The front end starts the backend in the project's folder. ``config_settings`` may name a platform,
levels and releases of PyTorch:
``pip install . -C platform=x86_64 -C level=x86-64-v3 -C gates=2.10.0``.
"""

from __future__ import annotations

import io
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from opsmith.errors import ExportError
from opsmith.wheels import building, project

Settings = Mapping[str, Any] | None


def build_wheel(
    wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None
) -> str:
    """Build a wheel, as PEP 517 defines it."""
    del metadata_directory
    settings = config_settings or {}
    level, gates = settings.get("level"), settings.get("gates", [])
    made = building.build_wheel(
        Path.cwd(),
        Path(wheel_directory),
        platform=settings.get("platform", "native"),
        levels=[level] if isinstance(level, str) else level,
        gates=[gates] if isinstance(gates, str) else gates,
    )
    return made.name


def prepare_metadata_for_build_wheel(
    metadata_directory: str, config_settings: Settings = None
) -> str:
    """Write the wheel's metadata, as PEP 517 defines it, before anything is compiled."""
    del config_settings
    return _metadata(metadata_directory, needs_opsmith=False)


def prepare_metadata_for_build_editable(
    metadata_directory: str, config_settings: Settings = None
) -> str:
    """Write the metadata of an editable wheel, as PEP 660 defines it."""
    del config_settings
    return _metadata(metadata_directory, needs_opsmith=True)


def _metadata(folder: str, *, needs_opsmith: bool) -> str:
    found = project.read(Path.cwd())
    info = Path(folder, f"{found.stem}.dist-info")
    for name, data in found.about(needs_opsmith=needs_opsmith).items():
        (info / name).parent.mkdir(parents=True, exist_ok=True)
        (info / name).write_bytes(data)
    return info.name


def build_editable(
    wheel_directory: str, config_settings: Settings = None, metadata_directory: str | None = None
) -> str:
    """Build an editable wheel (PEP 660), which builds kernels in place and needs opsmith."""
    del config_settings, metadata_directory
    return building.build_editable(Path.cwd(), Path(wheel_directory)).name


def build_sdist(sdist_directory: str, config_settings: Settings = None) -> str:
    """Build a source distribution, as PEP 517 defines it."""
    del config_settings
    found = project.read(Path.cwd())
    if found.root == Path.cwd():
        raise ExportError(
            f"{found.root}: is the package itself, and a source distribution unpacks into a folder "
            f"of another name. Move its files into {found.package}/ or src/{found.package}/."
        )
    stem = found.stem
    path = Path(sdist_directory) / f"{stem}.tar.gz"
    files = {Path("pyproject.toml"): Path.cwd() / "pyproject.toml"}
    for name in ("README.md", "LICENSE"):
        if (Path.cwd() / name).is_file():
            files[Path(name)] = Path.cwd() / name
    for file in found.files:
        files[(found.root / file).relative_to(Path.cwd())] = found.root / file
    with tarfile.open(path, "w:gz", format=tarfile.PAX_FORMAT) as archive:
        for place, file in sorted(files.items()):
            archive.add(file, f"{stem}/{place.as_posix()}", recursive=False)
        data = found.about()["METADATA"]
        entry = tarfile.TarInfo(f"{stem}/PKG-INFO")
        entry.size = len(data)
        archive.addfile(entry, io.BytesIO(data))
    return path.name
