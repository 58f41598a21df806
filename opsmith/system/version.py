"""The version of opsmith, which generated files carry and cache keys contain."""

from __future__ import annotations

from functools import cache
from importlib import metadata


@cache
def version() -> str:
    """Return the installed version of opsmith."""
    try:
        return metadata.version("opsmith")
    except metadata.PackageNotFoundError:
        return "0+unknown"
