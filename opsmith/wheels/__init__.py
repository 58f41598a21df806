"""Wheels of packages that declare operators, which need no compiler where they are installed.

A wheel holds the package, its kernels' libraries, and the modules of opsmith that serve its
operators (``runtime``). See ``docs/wheels.md``.
"""

from opsmith.wheels.building import build_wheel

__all__ = ["build_wheel"]
