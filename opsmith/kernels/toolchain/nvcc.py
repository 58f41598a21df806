"""Find nvcc, the host compilers that it supports, and the GPUs to compile for."""

from __future__ import annotations

import os
import re
import shutil
from pathlib import Path

from opsmith.errors import MissingDependencyError
from opsmith.kernels.toolchain.compilers import Compiler, find_compiler, tool_version
from opsmith.kernels.toolchain.devices import DEVICES

#: The flag that lets nvcc try a host compiler that it does not support.
ANY_HOST = "-allow-unsupported-compiler"
_WHOLE = ("all", "all-major", "native")
_ARCH = re.compile(r"(?:sm_|compute_)?(\d{1,2})\.?(\d)([af]?)(\+ptx)?")
# crt/host_config.h rejects newer host compilers: read the first version that it rejects.
_TOO_NEW = {
    "GCC": (re.compile(r"__GNUC__\s*>\s*(\d+)"), 1),
    "Clang": (re.compile(r"__clang_major__\s*>=\s*(\d+)"), 0),
}


def find_nvcc(what: str) -> Compiler:
    """Return the CUDA compiler that ``CUDACXX`` names, else nvcc on the PATH or in ``CUDA_HOME``.

    Args:
        what: what the compiler is needed for, for the message.
    """
    home = _home()
    for candidate in (os.environ.get("CUDACXX"), "nvcc", str(Path(home) / "bin" / "nvcc")):
        path = shutil.which(candidate) if candidate else None
        if path is not None:
            return Compiler(path, tool_version(path, what))
    raise MissingDependencyError(
        f"{what}: needs the CUDA compiler nvcc, and it is neither on the PATH nor below {home}. "
        "Install the CUDA toolkit (https://developer.nvidia.com/cuda-downloads), or set CUDACXX."
    )


def _home() -> str:
    return os.environ.get("CUDA_HOME") or os.environ.get("CUDA_PATH") or "/usr/local/cuda"


def usable_nvcc(what: str) -> Compiler:
    """Return the CUDA compiler, if it supports the host compiler."""
    nvcc = find_nvcc(what)
    try:
        host = find_compiler(what)
    except MissingDependencyError:
        return nvcc  # a later step reports the missing host compiler
    require_host(nvcc, host, what)
    return nvcc


def require_host(nvcc: Compiler, host: Compiler, what: str) -> None:
    """Refuse a host compiler that nvcc does not support, before the build starts.

    Args:
        host: the C++ compiler that nvcc is to call.
        what: what is built, for the message.
    """
    kind, version = _kind(host)
    newest = _newest_host(nvcc, kind)
    if newest is None or version is None or version <= newest:
        return
    program = "g++" if kind == "GCC" else "clang++"
    older = next(
        (name for v in range(newest, 6, -1) if shutil.which(name := f"{program}-{v}")), None
    )
    remedy = f"Set CXX={older}" if older else f"Install {program}-{newest} and set CXX to it"
    raise MissingDependencyError(
        f"{what}: this nvcc ({_release(nvcc)}, {nvcc.path}) supports {kind} up to {newest}, and "
        f"{host.path} is {kind} {version}. {remedy}; or let nvcc try, with flags=({ANY_HOST!r},)."
    )


def _kind(host: Compiler) -> tuple[str, int | None]:
    first = host.version.partition("\n")[0]
    clang = re.search(r"clang version (\d+)", host.version)
    if clang is not None:
        return "Clang", int(clang[1])
    # Take the last number: a number in parentheses is the distribution's.
    versions = re.findall(r"(?<![\w.])(\d+)\.\d+", re.sub(r"\([^()]*\)", "", first))
    return "GCC", int(versions[-1]) if versions else None


def _newest_host(nvcc: Compiler, kind: str) -> int | None:
    """Return the newest major version that the toolkit's headers accept; `None` if unknown."""
    for path in _host_configs(nvcc):
        try:
            text = path.read_text(errors="replace")
        except OSError:
            continue
        pattern, inclusive = _TOO_NEW[kind]
        found = [int(number) for number in pattern.findall(text)]
        if found:
            return max(found) - 1 + inclusive
    return None


def _host_configs(nvcc: Compiler) -> list[Path]:
    """Return the possible paths of the header: nvcc may be a link or a wrapper script."""
    homes = [Path(os.path.realpath(nvcc.path)).parent.parent]
    homes.append(Path(_home()))
    return [home / "include" / "crt" / "host_config.h" for home in homes]


def _release(nvcc: Compiler) -> str:
    found = re.search(r"release (\d+\.\d+)", nvcc.version)
    return f"CUDA {found[1]}" if found else "of an unknown release"


def cuda_architectures() -> str:
    """Return the value of ``CMAKE_CUDA_ARCHITECTURES``, from ``OPSMITH_CUDA_ARCHS``.

    The default is the architectures of this machine's CUDA devices; without a device, every major
    architecture. If several are chosen, the newest is also compiled to PTX, which future GPUs can
    run.
    """
    chosen = os.environ.get("OPSMITH_CUDA_ARCHS", "").strip().lower()
    if chosen in _WHOLE:
        return chosen
    if chosen:
        return _listed(chosen)
    here = DEVICES["cuda"].architectures()
    return ";".join(name.removeprefix("sm_") for name in here) or "all-major"


def _listed(chosen: str) -> str:
    wanted: list[tuple[int, str, bool]] = []
    for word in re.split(r"[;,\s]+", chosen):
        found = _ARCH.fullmatch(word)
        if found is None:
            raise MissingDependencyError(
                f"OPSMITH_CUDA_ARCHS has {word!r}; expected architectures, as in 80;90, or one of "
                f"{', '.join(_WHOLE)}."
            )
        major, minor, feature, ptx = found.groups()
        wanted.append((int(major) * 10 + int(minor), feature, bool(ptx)))
    newest = max(number for number, _, _ in wanted)
    # Neither code nor PTX for one GPU's own features ("90a") runs on newer GPUs.
    return ";".join(
        f"{number}{feature}"
        if (number == newest and not feature) or ptx
        else f"{number}{feature}-real"
        for number, feature, ptx in sorted(set(wanted))
    )
