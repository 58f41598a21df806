"""In an installed package, in place of ``opsmith.kernels.build.version``."""

from __future__ import annotations


def version() -> str:
    """The version of the opsmith that this came from."""
    return "{version}"
