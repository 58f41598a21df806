"""Load the libraries of operators, after verifying that they are the exported files."""

from __future__ import annotations

import ctypes
import importlib
import importlib.machinery
import platform
import sys
from pathlib import Path
from typing import Any

from opsmith.targets.exporting.packages import runtime

_HERE = Path(__file__).parent


def entry(name: str, sha256: str, symbol: str) -> int:
    """Return the address of the function that a library exports.

    Raises:
        ArtifactError: the library was changed after the export, or does not load here.
    """
    library = runtime.load(_HERE / name, sha256)
    address = ctypes.cast(library[symbol], ctypes.c_void_p).value
    assert address is not None
    return address


def extension(package: str, name: str, sha256: str, serves: str) -> Any:
    """Import the package's extension module.

    Args:
        name: name of the extension's file.
        sha256: digest of the exported file.
        serves: the Pythons that the extension is for.

    Raises:
        ArtifactError: the file was changed after the export.
        ImportError: the extension is for another Python, or does not load.
    """
    here = f"Python {sys.version_info[0]}.{sys.version_info[1]} on {platform.machine()}"
    if name not in {f"_native{suffix}" for suffix in importlib.machinery.EXTENSION_SUFFIXES}:
        raise ImportError(
            f"{package} was exported for {serves}, and this is {here}. Export again with it."
        )
    runtime.require(_HERE / name, sha256)
    try:
        return importlib.import_module(f"{package}._native")
    except ImportError as error:
        raise ImportError(f"{package} was exported for {serves}; in {here}: {error}") from error
