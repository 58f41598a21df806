"""Build wheels of packages that declare operators, which need no compiler when installed.

A wheel holds the package, its kernels' libraries, and the modules of opsmith that its operators
need (``runtime``). See ``docs/how-to/wheels.md``.
"""

from opsmith.wheels.building import build_wheel
from opsmith.wheels.huggingface import build_folder, build_tvm_ffi_folder

__all__ = ["build_folder", "build_tvm_ffi_folder", "build_wheel"]
