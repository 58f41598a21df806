"""The stand-in for the CUDA driver, one for all tests of a process, and "code" for it to launch."""

from __future__ import annotations

import ctypes
import inspect
import subprocess
import tempfile
from functools import cache
from pathlib import Path

from opsmith.kernels.languages.triton import compiling
from opsmith.kernels.toolchain import compilers

SOURCES = Path(__file__).with_name("kernels") / "sources"


@cache
def fake_cuda() -> ctypes.CDLL:
    """Compile and load it: whoever opens ``libcuda.so.1`` in this process gets it."""
    compiler = compilers.find_compiler("the stand-in for the CUDA driver").path
    command = [compiler, "-shared", "-fPIC", "-std=c++20", "-Wl,-soname,libcuda.so.1"]
    with tempfile.TemporaryDirectory() as folder:
        library = Path(folder) / "libcuda.so.1"
        subprocess.run([*command, SOURCES / "fake_cuda.cpp", "-o", library], check=True)
        # The name is found where a library of that name is loaded already.
        fake = ctypes.CDLL(str(library), mode=ctypes.RTLD_GLOBAL)
    fake.fake_log.restype = ctypes.c_char_p
    return fake


class Jit:
    """What ``@triton.jit`` gives, as far as it is looked at before compiling."""

    def __init__(self, fn):
        self.fn = fn
        self.arg_names = list(inspect.signature(fn).parameters)


def as_text(kernel, configuration, dtype, assumption, architecture):
    """In place of `compiling.compile_for`: the code is a text that says what it is for."""
    divisible, narrow = assumption
    letters = {"pointer": "p", "integer": "i" if narrow else "l", "real": "f"}
    types = "".join(letters[one.kind] for one in configuration.given)
    constants = ",".join(f"{name}={value}" for name, value in configuration.constants.items())
    text = f"{types} {dtype} sm_{architecture} {constants} /16: {','.join(sorted(divisible))}\0"
    shared = 100_000 if configuration.options["num_warps"] == 8 else 0
    warps = configuration.options["num_warps"]
    return compiling.Image(architecture, text.encode(), "scale_kernel", warps, shared, 2)
