"""Compile CUDA for GPUs that are not here, and read what ptxas says of each kernel."""

from __future__ import annotations

import importlib.util
import os
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from opsmith.errors import BuildError, MissingDependencyError
from opsmith.kernels.languages.cpp import Cpp
from opsmith.kernels.source import KernelSource
from opsmith.kernels.toolchain import nvcc
from opsmith.kernels.toolchain.audit import demangle
from opsmith.kernels.toolchain.compilers import (
    TARGET_VERSION,
    Compiler,
    find_compiler,
    tool_version,
)
from opsmith.kernels.toolchain.torch_paths import torch_paths
from opsmith.kernels.toolchain.units import INCLUDE, Unit
from opsmith.system.progress import run
from opsmith.system.scratch import scratch_folder
from opsmith.system.text import beginning

#: The architectures of A100 and H100.
_USUAL = "80;90"
#: Number of registers of a multiprocessor, and the most that one block can use.
_REGISTERS = 65_536
_ENTRY = re.compile(r"Compiling entry function '(\w+)' for '(\w+)'")
_PROPERTIES = re.compile(
    r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads"
)
_USED = re.compile(r"Used (\d+) registers")
_SHARED = re.compile(r"(\d+) bytes smem")
_BOUNDS = re.compile(r"\.entry (\w+)\([^{]*?\.maxntid (\d+)(?:, (\d+), (\d+))?", re.DOTALL)


@dataclass(frozen=True)
class Resources:
    """The registers and memory of a GPU that a kernel uses.

    Attributes:
        architecture: the GPU's architecture, as ``sm_90``.
        spilled: bytes of a thread's registers that are in memory.
        shared: bytes of shared memory that a block declares.
        bound: the most threads that ``__launch_bounds__`` promises; `None` without them.
    """

    kernel: str
    architecture: str
    registers: int
    spilled: int
    shared: int
    bound: int | None

    @property
    def threads(self) -> int:
        """The most threads that a block can have with its registers, allocated eight at a time."""
        of_warp = (self.registers + 7) // 8 * 8 * 32
        return min(1024, _REGISTERS // max(of_warp, 1) * 32)


def described(found: Sequence[Resources]) -> list[str]:
    """Return a line for each kernel and architecture; instances of a template share one."""
    groups: dict[tuple[str, str], list[Resources]] = {}
    for one in found:
        groups.setdefault((one.kernel.partition("<")[0], one.architecture), []).append(one)
    return [_line(*key, group) for key, group in groups.items()]


def _line(kernel: str, architecture: str, group: Sequence[Resources]) -> str:
    least, most = (pick(one.registers for one in group) for pick in (min, max))
    words = [f"{least} to {most} registers" if least != most else f"{most} registers"]
    if spilled := max(one.spilled for one in group):
        words.append(f"{spilled} bytes spilled")
    if shared := max(one.shared for one in group):
        words.append(f"{shared} bytes of shared memory")
    bounds = [one.bound for one in group if one.bound is not None]
    threads = min(one.threads for one in group)
    if bounds:
        words.append(f"at most {min(bounds)} threads by its __launch_bounds__")
    elif threads < 1024:
        words.append(f"at most {threads} threads have registers")
    return f"{kernel} ({architecture}): {', '.join(words)}"


def find(what: str) -> Compiler:
    """Return nvcc: as `nvcc.find_nvcc` does, else NVIDIA's wheels for Python.

    Args:
        what: what it is needed for, for the message.
    """
    try:
        return nvcc.find_nvcc(what)
    except MissingDependencyError:
        found = importlib.util.find_spec("nvidia")
        for folder in () if found is None else found.submodule_search_locations or ():
            for path in sorted(Path(folder).glob("cu*/bin/nvcc"), reverse=True):
                return Compiler(str(path), tool_version(str(path), what))
    raise MissingDependencyError(
        f"{what}: needs nvcc, which pip install 'opsmith[cuda]' brings; no GPU is needed"
    )


def architectures() -> list[str]:
    """Return the architectures that ``OPSMITH_CUDA_ARCHS`` lists, as numbers; else usual ones."""
    chosen = os.environ.get("OPSMITH_CUDA_ARCHS", "").strip()
    listed = nvcc.cuda_architectures() if chosen else _USUAL
    words = [word.removesuffix("-real") for word in listed.split(";")]
    return [word for word in words if word[:1].isdigit()] or _USUAL.split(";")


def resources_of(source: KernelSource, unit: Unit | None = None) -> list[Resources]:
    """Compile a source for the requested architectures, and return the resources of its kernels.

    Args:
        unit: how it is compiled, if not as a kernel against ``<opsmith/kernel.h>``.

    Raises:
        BuildError: nvcc refuses the source.
        MissingDependencyError: there is no nvcc.
    """
    compiler = find(source.what)
    unit = unit or Cpp().unit(source)
    unit.write()
    paths = torch_paths()
    folders = () if paths is None else paths.include if unit.full_torch else paths.include[:1]
    system = [str(folder) for folder in folders]
    options = [
        *("-std=c++20", "--expt-relaxed-constexpr"),
        *(f"-I{folder}" for folder in (unit.written, INCLUDE, *unit.include_dirs)),
        *(word for folder in system for word in ("-isystem", folder)),
        *(() if unit.full_torch else (f"-DTORCH_TARGET_VERSION={TARGET_VERSION}",)),
        *(f"-D{define}" for define in unit.defines),
        *unit.flags,
    ]
    found = []
    for architecture in architectures():
        found += resources(compiler, unit.path, options, architecture, source.what)
    names = demangled([one.kernel for one in found])
    return [replace(one, kernel=names[one.kernel]) for one in found]


def resources(
    compiler: Compiler, source: Path, options: Sequence[str], architecture: str, what: str
) -> list[Resources]:
    """Compile a source for an architecture, and return the resources that each kernel uses.

    Raises:
        BuildError: nvcc refuses the source.
    """
    host = find_compiler(what).path
    with scratch_folder("ptxas") as folder:
        ptx = folder / "kernels.ptx"
        command = [compiler.path, "-ccbin", host, "-ptx", f"-arch=compute_{architecture}"]
        done = run([*command, *options, str(source), "-o", str(ptx)], os.environ, what)
        if done.returncode != 0:
            raise BuildError(f"{what}: nvcc refuses it.\n{_errors(done.stdout)}")
        text = ptx.read_text(errors="replace")
        command = [str(Path(compiler.path).with_name("ptxas")), "-v", f"-arch=sm_{architecture}"]
        done = run([*command, str(ptx), "-o", str(folder / "kernels.cubin")], os.environ, what)
        if done.returncode != 0:
            raise BuildError(f"{what}: ptxas refuses it.\n{_errors(done.stdout)}")
    return parse(done.stdout, text)


def _errors(output: str) -> str:
    lines = output.strip().splitlines()
    errors = [line for line in lines if "error" in line]
    return beginning(errors or lines)


def parse(said: str, ptx: str) -> list[Resources]:
    """Return what kernels take.

    Args:
        said: what ``ptxas -v`` printed.
        ptx: what it read.
    """
    bounds = {}
    for name, *sizes in _BOUNDS.findall(ptx):
        x, y, z = (int(size or 1) for size in sizes)
        bounds[name] = x * y * z
    found = []
    for part in re.split(r"(?=Compiling entry function)", said)[1:]:
        entry, used = _ENTRY.search(part), _USED.search(part)
        if entry is None or used is None:
            continue
        properties, shared = _PROPERTIES.search(part), _SHARED.search(part)
        found.append(
            Resources(
                kernel=entry[1],
                architecture=entry[2],
                registers=int(used[1]),
                spilled=int(properties[2]) if properties else 0,
                shared=int(shared[1]) if shared else 0,
                bound=bounds.get(entry[1]),
            )
        )
    return found


def demangled(names: Sequence[str]) -> dict[str, str]:
    """Return names as a source has them, without arguments, where binutils are; else as given."""
    return {name: _short(line) for name, line in zip(names, demangle(names), strict=True)}


def _short(name: str) -> str:
    name = name.replace("(anonymous namespace)::", "").removeprefix("void ")
    depth = 0
    for at, character in enumerate(name):
        depth += (character == "<") - (character == ">")
        if character == "(" and depth == 0:
            return name[:at]
    return name
