"""What tests of several targets share."""

from __future__ import annotations

import re
import subprocess
import sys
import venv
from importlib import metadata
from pathlib import Path

import pytest
from filelock import FileLock
from packaging.requirements import Requirement

from opsmith.kernels import cache_folder


@pytest.fixture(scope="session")
def bare_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment that has onnxruntime and NumPy, and no torch and no opsmith."""
    return _linked(tmp_path_factory.mktemp("bare"), "onnxruntime")


@pytest.fixture(scope="session")
def jax_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment that has JAX and NumPy, and no torch and no opsmith."""
    return _linked(tmp_path_factory.mktemp("jax"), "jax")


@pytest.fixture(scope="session")
def numpy_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment that has NumPy, and nothing else."""
    return _linked(tmp_path_factory.mktemp("numpy"), "numpy")


@pytest.fixture(scope="session")
def backend_python() -> Path:
    """The Python of an environment that has nanobind-backend and NumPy."""
    return _downloaded("nanobind-backend==1.0.0", "numpy")


@pytest.fixture(scope="session")
def tvm_ffi_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The Python of an environment that has apache-tvm-ffi and NumPy, and nothing else."""
    return _linked(tmp_path_factory.mktemp("tvm_ffi"), "apache-tvm-ffi", "numpy")


def _linked(folder: Path, *packages: str) -> Path:
    """The Python of an environment that sees packages as they are installed here, with needs."""
    python, site = _empty(folder)
    found: dict[str, metadata.Distribution] = {}
    for package in packages:
        _with_needs(package, found)
    for distribution in found.values():
        for name in {file.parts[0] for file in distribution.files or ()} - {"..", "__pycache__"}:
            if not (site / name).exists():
                (site / name).symlink_to(Path(str(distribution.locate_file(name))))
    return python


def _with_needs(
    package: str, found: dict[str, metadata.Distribution]
) -> dict[str, metadata.Distribution]:
    if package not in found:
        found[package] = metadata.distribution(package)
        for line in found[package].requires or ():
            need = Requirement(line)
            if need.marker is None or need.marker.evaluate({"extra": ""}):
                _with_needs(need.name, found)
    return found


def _downloaded(*packages: str) -> Path:
    """The Python of an environment into which pip downloads; made once, in the cache."""
    name = "-".join([f"{sys.version_info[0]}.{sys.version_info[1]}", *packages])
    folder = cache_folder() / "test-environments" / name
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):
        if not (folder / "ready").is_file():
            _, site = _empty(folder)
            command = [sys.executable, "-m", "pip", "install", "-q", "--target", site, *packages]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                if OFFLINE.search(done.stderr):
                    pytest.skip(f"pip reaches no network: {done.stderr.strip()[-300:]}")
                pytest.fail(done.stderr)
            (folder / "ready").touch()
    return folder / "bin" / "python"


#: What pip says of a network that is not there; anything else is a failure.
OFFLINE = re.compile("connection broken by '(NewConnection|NameResolution|ConnectTimeout|Proxy)")


def _empty(folder: Path) -> tuple[Path, Path]:
    """The Python and the ``site-packages`` of a new environment without anything."""
    venv.create(folder, clear=True)
    (site,) = folder.glob("lib/python*/site-packages")
    return folder / "bin" / "python", site
