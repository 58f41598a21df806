"""From a kernel's source file to a library that runs: headers, adapters, compiler, cache.

What the layers above use::

    source = KernelSource(signature, "cpu", Path("scale.cpp"), strided=False, flags=("-Wall",))
    source.build()         # -> Path of the library, built or cached
    library = source.load()          # -> Library, in this process
    library.register()               # the operator's kernel for the device, until unregister()
    library.calls()                  # how often the kernel ran in this process
    library.dtypes()                 # ("float32", "float64", ...): those of OPSMITH_KERNEL

    # A target with an adapter of its own, around the same kernel source:
    render(template, signature, entry=entry_symbol(signature, "cpu"), ...)    # -> str
    build_library(name, [kernel_source], Generated(key, render_files), torch="none")   # -> Path

``kernel_files(signature)`` gives ``<op>.h`` (what the kernel includes) and ``<op>_check.h`` (the
validation that every adapter shares: class ``opsmith::generated::<ns>__<op>_call``). What a kernel
sees is described in ``include/opsmith/kernel.h``, what an adapter fills in
``include/opsmith/abi.h``.

The environment decides: ``CXX``, ``CXXFLAGS``, ``LDFLAGS``, ``CUDACXX``; ``OPSMITH_CACHE`` (where
libraries are kept), ``OPSMITH_ARCH`` (the value of ``-march``: ``native`` by default, ``generic``
leaves the flag out).
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from opsmith.kernels.build import INCLUDE, Generated, build_library
from opsmith.kernels.files import cache_folder
from opsmith.kernels.library import KernelSource, Library, defines_operator, generated_key
from opsmith.kernels.symbols import calls_symbol, dtypes_symbol, entry_symbol, raw_type
from opsmith.signature.model import Signature

__all__ = [
    "INCLUDE",
    "Generated",
    "KernelSource",
    "Library",
    "build_library",
    "cache_folder",
    "calls_symbol",
    "defines_operator",
    "dtypes_symbol",
    "entry_symbol",
    "generated_key",
    "kernel_files",
    "raw_type",
    "render",
]


def kernel_files(signature: Signature) -> dict[str, str]:
    """``<op>.h`` and ``<op>_check.h`` by file name; see `opsmith.kernels.generate`."""
    from opsmith.kernels import generate

    return generate.kernel_files(signature)


def render(template: Path, signature: Signature, **more: Any) -> str:
    """Render an adapter template; see `opsmith.kernels.generate.render`."""
    from opsmith.kernels import generate

    return generate.render(template, signature, **more)
