"""What tests of several targets share."""

from __future__ import annotations

import subprocess
import sys
import venv
from pathlib import Path

import pytest
from filelock import FileLock

from opsmith.kernels import cache_folder


@pytest.fixture(scope="session")
def bare_python() -> Path:
    """The Python of an environment that has onnxruntime and NumPy, and no torch and no opsmith."""
    import onnxruntime

    return _environment("onnxruntime", onnxruntime.__version__)


@pytest.fixture(scope="session")
def jax_python() -> Path:
    """The Python of an environment that has JAX and NumPy, and no torch and no opsmith."""
    import jax

    return _environment("jax", jax.__version__)


@pytest.fixture(scope="session")
def numpy_python() -> Path:
    """The Python of an environment that has NumPy, and nothing else."""
    import numpy

    return _environment("numpy", numpy.__version__)


@pytest.fixture(scope="session")
def backend_python() -> Path:
    """The Python of an environment that has nanobind-backend and NumPy."""
    return _environment("nanobind-backend", "1.0.0")


def _environment(package: str, version: str) -> Path:
    """Made once, in the cache: installing takes longer than any test."""
    name = f"{package}-{sys.version_info[0]}.{sys.version_info[1]}-{version}"
    folder = cache_folder() / "test-environments" / name
    python = folder / "bin" / "python"
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(folder.with_suffix(".lock")):
        if not (folder / "ready").is_file():
            venv.create(folder, with_pip=True, clear=True)
            command = [str(python), "-m", "pip", "install", "-q", "--disable-pip-version-check"]
            done = subprocess.run(
                [*command, f"{package}=={version}", "numpy"],
                capture_output=True,
                text=True,
                check=False,
            )
            if done.returncode != 0:
                pytest.skip(f"{package} cannot be installed here: {done.stderr.strip()[-300:]}")
            (folder / "ready").touch()
    return python
