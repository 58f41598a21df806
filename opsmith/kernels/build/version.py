"""The version that generated files carry and that decides what a cached library may be used for."""

from __future__ import annotations

from functools import cache
from importlib import metadata


@cache
def version() -> str:
    """The installed version of opsmith."""
    try:
        return metadata.version("opsmith")
    except metadata.PackageNotFoundError:
        return "0+unknown"
