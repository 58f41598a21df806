"""The environment variables that processes in a sandbox get."""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

#: Variables of this process that are passed on: those that compilers and libraries need.
ENVIRONMENT = (
    "PATH",
    "HOME",
    "LANG",
    "LC_ALL",
    "LD_LIBRARY_PATH",
    "CC",
    "CXX",
    "CXXFLAGS",
    "LDFLAGS",
    "CUDA_HOME",
    "OMP_NUM_THREADS",
)


def passed_on() -> dict[str, str]:
    """Return the variables that each process in a sandbox gets."""
    variables = {name: os.environ[name] for name in ENVIRONMENT if name in os.environ}
    # Leave out the folders that an installation has anyway.
    usual = [Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve()]
    extra = [
        path
        for path in dict.fromkeys(sys.path)
        if path and not any(Path(path).resolve().is_relative_to(one) for one in usual)
    ]
    if extra:
        variables["PYTHONPATH"] = os.pathsep.join(extra)
    if tempfile.gettempdir() != "/tmp":
        variables["TMPDIR"] = tempfile.gettempdir()
    return variables
