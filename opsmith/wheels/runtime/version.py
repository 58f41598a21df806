"""Replace ``opsmith.system.version`` in an installed package."""

from __future__ import annotations


def version() -> str:
    """Return the version of the opsmith that built the package."""
    return "{version}"
