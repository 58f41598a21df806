"""The stand-in for the CUDA driver, one for all tests of a process."""

from __future__ import annotations

import ctypes
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from opsmith.kernels import toolchain

SOURCES = Path(__file__).with_name("kernels") / "sources"


@cache
def fake_cuda() -> ctypes.CDLL:
    """Compile and load it: whoever opens ``libcuda.so.1`` in this process gets it."""
    compiler = toolchain.find_compiler("the stand-in for the CUDA driver").path
    command = [compiler, "-shared", "-fPIC", "-std=c++20", "-Wl,-soname,libcuda.so.1"]
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "libcuda.so.1"
        subprocess.run([*command, SOURCES / "fake_cuda.cpp", "-o", library], check=True)
        # The name is found where a library of that name is loaded already.
        fake = ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
    fake.fake_log.restype = ctypes.c_char_p
    return fake
