"""Build a wheel of the package's files, its kernels' libraries, and the modules they need."""

from __future__ import annotations

import base64
import hashlib
import json
import os
import platform as host
import re
import subprocess
import sys
import zipfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from opsmith.errors import DeclarationError, ExportError, MissingDependencyError
from opsmith.kernels import DEVICES, HOST, KernelSource, get_device
from opsmith.kernels.languages.triton import require_triton
from opsmith.kernels.libraries import prebuilt
from opsmith.operators.core.operator import Kernel
from opsmith.operators.defined import DefinedOperator
from opsmith.system import machine
from opsmith.system.progress import status
from opsmith.system.scratch import held_folder, scratch_folder
from opsmith.system.version import version as own_version
from opsmith.system.watchdog import watched
from opsmith.wheels import carried, project
from opsmith.wheels.gates import build_gates, find_headers
from opsmith.wheels.platforms import Platform, compiling_for, find_levels, find_platform
from opsmith.wheels.project import Project

#: The earliest time that a zip file can store; a fixed time makes builds reproducible.
_TIME = (1980, 1, 1, 0, 0, 0)


def build_wheel(
    source: Path,
    out: Path,
    *,
    platform: str = "native",
    levels: Sequence[str] | None = None,
    gates: Sequence[str] = (),
    name: str | None = None,
    version: str | None = None,
    report: Path | None = None,
    say: Callable[[str], None] | None = None,
) -> Path:
    """Build a wheel for every Python and PyTorch that opsmith supports, on one platform.

    Args:
        source: a folder with a ``pyproject.toml``, or one file that declares operators.
        out: the folder for the wheel.
        platform: ``"x86_64"`` or ``"aarch64"``, for every Linux with glibc 2.28 or later; or
            ``"native"``, for Linux as old as this machine's compiler allows.
        levels: the processor levels for which kernels are compiled; by default all of the platform.
        gates: releases of PyTorch, ``"2.10.0"``, with which calls shall not pass through Python, in
            addition to the installed one and those in ``[tool.opsmith] gates``; pip downloads their
            headers. Or folders of installed PyTorch, ``.../site-packages/torch``.
        name: for a file, the distribution's name.
        version: for a file, the distribution's version.
        report: a report on the operators from ``opsmith check --json``, to put into the wheel.
        say: a function that receives a sentence on every kernel whose library the wheel lacks.

    Raises:
        OptionError: the platform, one of its levels, or a release does not exist.
        ExportError: a part of the package cannot be in a wheel.
        BuildError: a kernel does not compile.
        MissingDependencyError: a tool that builds wheels is not installed.
    """
    kind = find_platform(platform)
    levels = find_levels(kind, levels)
    project.require_tools(cross=bool(kind.target))
    found = project.read(source, name, version)
    headers = [find_headers(release) for release in (*found.gates, *gates)]
    files = _python(found)
    with status("importing the package"):
        kernels, left_out = choose(found, kind)
    if say is not None:
        for sentence in left_out:
            say(sentence)
    with status(f"building kernels for {', '.join(levels)}"):
        listed, libraries = _libraries(found, kernels, kind, levels, files)
    files.update(libraries)
    with status("building the gates of PyTorch"):
        listed["gates"], libraries = build_gates(headers, kind, say)
    files.update(libraries)
    files[f"{prebuilt.FOLDER}/{prebuilt.LIST}"] = json.dumps(listed, indent=1).encode()
    if report is not None:
        files[f"{prebuilt.FOLDER}/report.json"] = report.read_bytes()
    files = {f"{found.package}/{place}": data for place, data in files.items()}
    out.mkdir(parents=True, exist_ok=True)
    with held_folder(out, ".opsmith-wheel-", ".partial") as folder:
        made = _write(found, kind.tag or f"linux_{kind.machine}", files, Path(folder))
        oldest = _audited(made)
        if not kind.tag:
            made = _write(found, oldest, files, Path(folder))
        elif _glibc(oldest) > _glibc(kind.tag):
            raise ExportError(
                f"{found.name}: its libraries need {oldest}, and the wheel is for {kind.tag}"
            )
        with status("importing it from the wheel, without opsmith"):
            _try(made, found, listed["libraries"] if kind.machine == host.machine() else [])
        final = out / made.name
        os.replace(made, final)
    return final


def build_editable(source: Path, out: Path) -> Path:
    """Build a wheel that only points to the project's folder, where kernels are built when needed.

    Args:
        source: a folder with a ``pyproject.toml``.
        out: the folder for the wheel.

    Returns:
        The path of the wheel, which requires opsmith.
    """
    found = project.read(source)
    pointer = {f"_{found.package}.pth": f"{found.root.parent}\n".encode()}
    return _write(found, "any", pointer, out, needs_opsmith=True)


def _python(found: Project) -> dict[str, bytes]:
    """Return the package's own files, and opsmith's modules."""
    files = {}
    for path, place in found.files.items():
        data = (found.root / path).read_bytes()
        if place.suffix == ".py":
            data = carried.adapted(data.decode(), place).encode()
        files[place.as_posix()] = data
    for name, text in carried.modules([one.name for one in found.operators]).items():
        files[name] = text.encode()
    return files


def _libraries(
    found: Project,
    kernels: Sequence[KernelSource],
    kind: Platform,
    levels: Sequence[str],
    files_there: Mapping[str, bytes],
) -> tuple[dict[str, Any], dict[str, bytes]]:
    """Return a description of the libraries, and the libraries' files."""
    entries, sources, files = [], {}, {}
    for level in levels:
        # Code for a GPU does not depend on the processor's level, so build it once.
        chosen = [one for one in kernels if one.device == HOST or level == levels[0]]
        # Compilers are separate processes, and linking one library leaves cores idle; so use
        # threads.
        with compiling_for(kind, level), ThreadPoolExecutor(os.cpu_count()) as executor:
            for kernel, library in zip(chosen, executor.map(_compiled, chosen), strict=True):
                place = found.place_of(kernel.path).as_posix()
                more = kernel.language.shipped_with(kernel)
                further = [
                    found.place_of(file).as_posix()
                    for file in more.pop("files", ())
                    if found.holds(file)
                ]
                file = f"libraries/{level}/{library.name}"
                data = library.read_bytes()
                files[f"{prebuilt.FOLDER}/{file}"] = data
                for needed in kernel.language.needs_beside(kernel):
                    beside, same = Path(file).with_name(needed.name), needed.read_bytes()
                    if files.setdefault(f"{prebuilt.FOLDER}/{beside}", same) != same:
                        raise ExportError(f"{kernel.what}: rename {needed}: there is {beside}")
                # Use the digests of the modules in the wheel, whose imports differ.
                for origin in (place, *further):
                    sources[origin] = hashlib.sha256(files_there[origin]).hexdigest()
                entries.append(
                    {
                        "source": place,
                        **({"further": further} if further else {}),
                        "operator": kernel.signature.qualname,
                        "device": kernel.device,
                        "machine": kind.machine,
                        "level": level,
                        "needs": machine.needed(level),
                        "file": file,
                        "sha256": hashlib.sha256(data).hexdigest(),
                        **more,
                    }
                )
    return {"opsmith": own_version(), "sources": sources, "libraries": entries}, files


def _compiled(kernel: KernelSource) -> Path:
    """Build the library of a kernel with the compiler that the environment names now."""
    kernel.language.require(kernel)
    return kernel.language.library(kernel).build()


def _write(
    found: Project,
    tag: str,
    files: Mapping[str, bytes],
    folder: Path,
    *,
    needs_opsmith: bool = False,
) -> Path:
    info = f"{found.stem}.dist-info"
    tag = f"py3-none-{tag}"
    everything = dict(files)
    about = found.about(needs_opsmith=needs_opsmith)
    everything.update({f"{info}/{name}": data for name, data in about.items()})
    everything[f"{info}/WHEEL"] = (
        f"Wheel-Version: 1.0\nGenerator: opsmith {own_version()}\n"
        f"Root-Is-Purelib: {'true' if tag.endswith('any') else 'false'}\nTag: {tag}\n"
    ).encode()
    record = f"{info}/RECORD"
    rows = [f"{place},sha256={_encoded(data)},{len(data)}" for place, data in everything.items()]
    everything[record] = "\n".join([*sorted(rows), f"{record},,", ""]).encode()
    path = folder / f"{found.stem}-{tag}.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as wheel:
        # Put the metadata at the end of the archive, where installers find it fastest.
        for place, data in sorted(everything.items(), key=lambda item: (info in item[0], item[0])):
            entry = zipfile.ZipInfo(place, _TIME)
            entry.external_attr = 0o644 << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            wheel.writestr(entry, data)
    return path


def _encoded(data: bytes) -> str:
    digest_ = hashlib.sha256(data).digest()
    return base64.urlsafe_b64encode(digest_).decode().rstrip("=")


def _audited(path: Path) -> str:
    """Return the oldest Linux on which a wheel's libraries run, as a platform tag."""
    run = subprocess.run(
        [sys.executable, "-m", "auditwheel", "show", "--json", str(path)],
        capture_output=True,
        text=True,
    )
    if run.returncode != 0:
        raise ExportError(f"auditwheel cannot read {path.name}: {run.stderr.strip()}")
    said = json.loads(run.stdout)
    beside = ("libtorch", "libtvm_ffi")  # a module names the latter, which lies beside it
    foreign = [name for name in said["external_libs"] if not name.startswith(beside)]
    if foreign:
        raise ExportError(
            f"{path.name}: its libraries need {', '.join(foreign)}, which the manylinux policy "
            "does not allow. Link them statically, or compile their sources in."
        )
    return str(said["sym_tag"])


def _glibc(tag: str) -> tuple[int, ...]:
    """Return the version of glibc in a tag."""
    return tuple(int(word) for word in re.findall(r"_(\d+)_(\d+)_", tag)[0])


def _try(path: Path, found: Project, libraries: Sequence[Mapping[str, Any]]) -> None:
    """Import the package from the wheel in a process without opsmith.

    Libraries for devices that this machine lacks are not loaded.
    """
    with scratch_folder("wheel") as folder:
        with zipfile.ZipFile(path) as archive:
            archive.extractall(folder)
        here = {device for device, row in DEVICES.items() if not row.missing()}
        modules = ",".join([found.package, *found.modules])
        kernels = sorted(
            {f"{one['operator']} {one['device']}" for one in libraries if one["device"] in here}
        )
        with watched() as variables:
            run = subprocess.run(
                [sys.executable, "-c", _TRY, folder, modules, *kernels],
                capture_output=True,
                text=True,
                env={**os.environ, **variables},
            )
    if run.returncode != 0:
        raise ExportError(
            f"{found.package}: does not work as it comes from the wheel, without opsmith:\n\n"
            f"{(run.stderr or run.stdout).strip()}"
        )


_TRY = """
import importlib, sys, warnings
folder, modules, *kernels = sys.argv[1:]
sys.path.insert(0, folder)
sys.modules["opsmith"] = None
package, *_ = map(importlib.import_module, modules.split(","))
ours = f"{package.__name__}._opsmith.operators"
registry = importlib.import_module(f"{ours}.core.registry")
for kernel in kernels:
    name, device = kernel.split()
    operator = registry.get(name)
    operator.kernels[device].build(operator)
gates = importlib.import_module(f"{ours}.dispatch.gates.gate_libraries")
with warnings.catch_warnings():
    warnings.simplefilter("error")
    gates.say()
"""


def choose(found: Project, kind: Platform) -> tuple[list[KernelSource], list[str]]:
    """Return the kernels whose libraries a wheel contains, and a sentence on each other kernel.

    Args:
        found: the package.
        kind: the platform.

    Raises:
        ExportError: the package declares an object that needs opsmith wherever it is imported.
    """
    sources, left_out = [], []
    for operator in found.operators:
        if not isinstance(operator, DefinedOperator):
            raise ExportError(
                f"{operator.name}: is adopted, so the library that defines it is not the "
                "package's to carry. Declare it with opsmith.op to ship it."
            )
        for device, kernel in operator.kernels.items():
            why = _obstacle(operator.name, kernel, kind)
            if why:
                left_out.append(f"{operator.name} ({device}): {why}")
            elif kernel.entry is not None:
                sources.append(kernel.entry)
    return sources, left_out


def _obstacle(name: str, kernel: Kernel, kind: Platform) -> str:
    """Return why a wheel lacks a kernel's library; empty if it has one or none is needed."""
    if kernel.dissolves:
        why = _not_ahead_of_time(kernel, kind).removeprefix(f"{name} ({kernel.device}): ")
        return why and f"its Python comes along, and Triton compiles it where it is called: {why}"
    if kernel.source is None:
        return ""
    if kernel.entry is None:
        return (
            'left out, since api="torch" binds to one PyTorch; its source comes along, and is '
            "compiled where opsmith is installed"
        )
    if kernel.entry.language.compiled_elsewhere and kind.target:
        return (
            "left out, since its module was compiled elsewhere, which only --platform native takes "
            "as it is; the module comes along, and is called where opsmith and tvm-ffi are"
        )
    if kernel.device == HOST:
        return ""
    if not get_device(kernel.device, "").in_every_library:
        return "left out, since wheels carry kernels for the CPU and CUDA; its source comes along"
    if kind.target:
        return (
            "left out, since nvcc calls this machine's compiler, which only --platform native "
            "uses; its source comes along"
        )
    try:
        with compiling_for(kind, kind.levels[0]):
            kernel.entry.language.require(kernel.entry)
    except MissingDependencyError as error:
        reason = str(error).removeprefix(f"{kernel.entry.what}: ")
        return f"left out, its source comes along: it {reason}"
    return ""


def _not_ahead_of_time(kernel: Kernel, kind: Platform) -> str:
    """Return why Triton cannot compile a kernel ahead of time here; empty if it can."""
    try:
        if kernel.entry is None:
            return "a function launches it"
        require_triton(kernel.entry.what)  # fail before anything is built for the platform
        with compiling_for(kind, kind.levels[0]):
            kernel.entry.build()
    except (DeclarationError, MissingDependencyError) as error:
        return str(error)
    return ""
