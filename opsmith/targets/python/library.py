"""Build the extension of a Python module, by nanobind."""

from __future__ import annotations

import importlib.machinery
import sys
import sysconfig
from pathlib import Path

from opsmith import kernels
from opsmith.operators import Operator
from opsmith.operators.core.operator import Kernel
from opsmith.targets.exporting import operator_export
from opsmith.targets.hosted.library import INCLUDE

_SOURCE = Path(__file__).parent / "native" / "module.cpp"
MODULE = "_native"
#: Flags of nanobind's own build, except for macOS and Windows.
_FLAGS = ("-fno-strict-aliasing", "-ffunction-sections", "-fdata-sections", "-fvisibility=hidden")


def obstacle(operator: Operator, kernel: Kernel | None) -> str | None:
    """Return why a Python module cannot call the operator by this kernel, or `None` if it can."""
    return operator_export.obstacle(operator, kernel, "a Python module")


#: The oldest Python whose stable ABI nanobind supports: with its code in the extension, or shared.
_OWN_STABLE, _SHARED_STABLE = (3, 12), (3, 10)


def oldest_python(shared: bool) -> tuple[int, int] | None:
    """Return the oldest Python that the extension serves, or `None` if only the current one.

    Args:
        shared: whether nanobind is in a package of its own.
    """
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return None
    if shared:
        return _SHARED_STABLE
    return _OWN_STABLE if sys.version_info >= _OWN_STABLE else None


def extension_file(shared: bool) -> str:
    """Return the file name of the extension module."""
    suffixes = importlib.machinery.EXTENSION_SUFFIXES
    return MODULE + (suffixes[0] if oldest_python(shared) is None else ".abi3.so")


def build_extension(shared: bool) -> Path:
    """Build the extension, the same for all operators, or find it in the cache.

    Args:
        shared: whether nanobind is in a package of its own.
    """
    import nanobind

    nanobind_include = Path(nanobind.include_dir())
    own = Path(nanobind.source_dir()) / "nb_combined.cpp"
    defines = ["NB_COMPACT_ASSERTIONS"]
    oldest = oldest_python(shared)
    if oldest is not None:
        defines.append(f"Py_LIMITED_API=0x{oldest[0]:02X}{oldest[1]:02X}0000")
    if shared:
        defines += ["NB_BACKEND_MODULE=nanobind_backend", "NB_BACKEND_PYPI=nanobind-backend"]
    include_dirs = (
        INCLUDE,
        nanobind_include,
        nanobind_include.parent / "ext" / "robin_map" / "include",
        Path(sysconfig.get_paths()["include"]),
    )
    nanobind_itself = kernels.Unit(
        name="nanobind",
        source=own,
        generated=kernels.Generated.of(None),
        include_dirs=include_dirs,
        defines=tuple(defines),
        # nanobind's own build uses -Os as well: its code has no loops worth optimizing.
        flags=(*_FLAGS, "-Os"),
    )
    return kernels.Recipe(
        f"python_module_{'shared' if shared else 'own'}",
        sources=[_SOURCE],
        objects=[] if shared else [nanobind_itself],
        include_dirs=include_dirs,
        defines=defines,
        # Python's symbols stay undefined until Python loads the extension.
        link_libraries=["-Wl,-z,undefs", "-Wl,--gc-sections", "-Wl,-s"],
        flags=_FLAGS,
        torch="none",
        what="the Python extension (once for this Python)",
        once_for=f"{sysconfig.get_config_var('SOABI')}, nanobind {nanobind.__version__}",
    ).build()
