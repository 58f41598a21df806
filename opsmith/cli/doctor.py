"""Find the compilers, tools and runtimes that are present and work, for `opsmith doctor`."""

from __future__ import annotations

import importlib
import importlib.metadata
import platform
import re
import subprocess
import sys
import warnings
from collections.abc import Callable, Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from rich.table import Table

from opsmith.errors import MissingDependencyError
from opsmith.kernels import DEVICES
from opsmith.kernels.language_registry import languages
from opsmith.kernels.toolchain import compilers
from opsmith.system.progress import status
from opsmith.system.scratch import scratch_folder

#: A program with the requirements of every kernel: C++20 and its standard library.
_PROBE_SOURCE = "#include <concepts>\n#include <span>\nint main() { return 0; }\n"

_OLDEST_PYTHON = (3, 10)
_OLDEST_TORCH = (2, 10)


@dataclass(frozen=True)
class Finding:
    """The result of looking for one compiler, tool or runtime.

    Attributes:
        name: its name.
        ok: whether it is present and works.
        essential: whether opsmith is useless without it.
        version: its version; empty if there is none.
        used_for: what opsmith uses it for.
        note: where it is, or why it does not work; may be empty.
        remedy: how to get it; empty if it is present.
    """

    name: str
    ok: bool
    essential: bool
    version: str
    used_for: str
    note: str = ""
    remedy: str = ""


def examine() -> Iterator[Finding]:
    """Look for everything that opsmith can use, in the order in which users need it."""
    yield _python()
    yield _torch()
    yield _host_compiler()
    yield _tool("cmake")
    yield _tool("ninja")
    yield from _compilers()
    yield from _devices()
    yield _package("hypothesis", "opsmith check", "pip install 'opsmith[check]'")
    yield from _targets()
    yield _package("triton", "Triton kernels", "pip install 'opsmith[triton]'")
    yield _package("netron", "looking at graphs", "pip install 'opsmith[view]'")
    yield _gates()


def healthy(findings: list[Finding]) -> bool:
    """Return whether everything essential is present and works."""
    return all(finding.ok for finding in findings if finding.essential)


def to_json(findings: list[Finding]) -> dict[str, object]:
    """Return the findings as plain data, with one `ok` for the whole machine."""
    return {"ok": healthy(findings), "findings": [asdict(finding) for finding in findings]}


def table(findings: list[Finding]) -> Table:
    """Draw the findings; the row of a missing tool tells how to get it."""
    drawn = Table(box=None, pad_edge=False, header_style="bold")
    drawn.add_column("")
    drawn.add_column("what", no_wrap=True)
    drawn.add_column("version", no_wrap=True)
    drawn.add_column("used for")
    drawn.add_column("where, or how to get it", overflow="fold")
    for finding in findings:
        mark, style = ("✓", "green") if finding.ok else ("–", "yellow")
        if finding.essential and not finding.ok:
            mark, style = "✗", "red"
        detail = ". ".join(filter(None, (finding.note, finding.remedy))).replace("[", r"\[")
        drawn.add_row(
            f"[{style}]{mark}[/]", finding.name, finding.version, finding.used_for, detail
        )
    return drawn


def _python() -> Finding:
    ok = sys.version_info[:2] >= _OLDEST_PYTHON
    remedy = "" if ok else "install Python 3.10 or newer"
    return Finding(
        "python", ok, True, platform.python_version(), "everything", sys.executable, remedy
    )


def _torch() -> Finding:
    used_for = "everything"
    remedy = "pip install 'torch>=2.10'"
    try:
        import torch
    except Exception as error:
        version = _installed_version("torch")
        return Finding("torch", False, True, version, used_for, _first_line(error), remedy)
    version = torch.__version__
    if tuple(int(part) for part in version.split(".")[:2]) < _OLDEST_TORCH:
        return Finding("torch", False, True, version, used_for, "its stable ABI is too old", remedy)
    toolkits = [device.toolkit() for device in DEVICES.values() if device.toolkit()]
    built_for = " and ".join(toolkits) or "CPUs"
    return Finding("torch", True, True, version, used_for, f"built for {built_for}")


def _host_compiler() -> Finding:
    """Find the C++ compiler that kernels are built with, and compile a C++20 program with it."""
    found = _program("C++ compiler", True, "C++ kernels", compilers.find_compiler)
    if not found.ok:
        return found
    with scratch_folder("doctor") as folder:
        source = Path(folder, "probe.cpp")
        source.write_text(_PROBE_SOURCE)
        command = [found.note, "-std=c++20", str(source), "-o", str(source.with_suffix(""))]
        tried = subprocess.run(command, capture_output=True, text=True, check=False)
    if tried.returncode != 0:
        note = f"{found.note} does not compile C++20: {_first_line(tried.stderr)}"
        remedy = "install g++ 11 or newer, or clang 14 or newer, or set CXX"
        return replace(found, ok=False, note=note, remedy=remedy)
    return found


def _tool(name: str) -> Finding:
    def find(used_for: str) -> compilers.Compiler:
        path = compilers.executable(name, used_for)
        return compilers.Compiler(path, compilers.tool_version(path, used_for))

    return _program(name, True, "building kernels", find)


def _compilers() -> Iterator[Finding]:
    """Look for the compilers that only one kernel language needs."""
    for language in languages():
        for name, find in language.compilers.items():
            yield _program(name, False, f"{language.name} kernels", find)


def _program(
    name: str, essential: bool, used_for: str, find: Callable[[str], compilers.Compiler]
) -> Finding:
    try:
        found = find(used_for)
    except MissingDependencyError as error:
        remedy = str(error).removeprefix(f"{used_for}: ")  # which has a column of its own
        return Finding(name, False, essential, "", used_for, "", remedy)
    return Finding(name, True, essential, _first_version(found.version), used_for, found.path)


def _devices() -> Iterator[Finding]:
    """Look for each device type whose kernels need a compiler other than the host's."""
    for device in DEVICES.values():
        if not device.title:
            continue
        name, used_for = f"{device.title} device", f"{device.title} kernels"
        try:
            if device.missing():
                yield Finding(name, False, False, "", used_for, "", device.remedy())
            else:
                yield Finding(
                    name, True, False, " ".join(device.architectures()), used_for, device.model()
                )
        except Exception as error:
            yield Finding(name, False, False, "", used_for, _first_line(error))


def _targets() -> Iterator[Finding]:
    """Examine each target, including the targets of other packages."""
    try:
        from opsmith.targets import all_targets
        from opsmith.targets.exporting.registry import broken_targets
    except Exception:
        return  # torch is missing, which has a row of its own
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a broken target gets a row
        targets = all_targets()
    for target in targets:
        used_for = f"target {target.title}"
        versions = [_installed_version(package) for package in target.packages]
        version = versions[0] if versions else ""
        problem = target.available() or ""
        note = "" if problem else _import_problem(target.packages)
        remedy = problem or (target.install if note else "")
        # The row "python" is the interpreter's.
        name = "python modules" if target.name == "python" else target.name
        yield Finding(name, not remedy, False, version, used_for, note, remedy)
    for name, problem in broken_targets().items():
        yield Finding(name, False, False, "", f"target {name}", problem, "mend or uninstall it")


def _import_problem(packages: Iterable[str]) -> str:
    for package in packages:
        try:
            with status(f"importing {package}"):
                importlib.import_module(package)
        except Exception as error:
            return f"{package} is installed, but importing it says: {_first_line(error)}"
    return ""


def _gates() -> Finding:
    """Build the libraries that depend on the PyTorch release, as an operator's first call would."""
    name, used_for = "gates in C++", "gradients, calls without Python"
    try:
        from opsmith.operators.dispatch.gates import gate_libraries

        gate_libraries.require()
    except Exception as error:
        note = f"Python does the same, slower: {_first_line(error)}"
        return Finding(name, False, False, "", used_for, note)
    return Finding(name, True, False, "", used_for, "built for this PyTorch")


def _package(name: str, used_for: str, remedy: str) -> Finding:
    """Import an optional package, since an installed package may still fail to load."""
    version = _installed_version(name)
    if not version:
        return Finding(name, False, False, "", used_for, "", remedy)
    note = _import_problem([name])
    if note:
        return Finding(name, False, False, version, used_for, note, remedy)
    return Finding(name, True, False, version, used_for)


def _installed_version(name: str) -> str:
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return ""


def _first_line(said: object) -> str:
    return (str(said).strip().splitlines() or [type(said).__name__])[0]


def _first_version(text: str) -> str:
    """Return the version in a line such as `g++ (Debian 12.2.0-14) 12.2.0`."""
    release = re.search(r"release (\S+),", text)  # the format of nvcc, in its fourth line
    first_line = re.sub(r"\(.*?\)", "", text.partition("\n")[0])
    found = release or re.search(r"(\d+(?:\.\d+)+)", first_line)
    return found[1] if found else ""
