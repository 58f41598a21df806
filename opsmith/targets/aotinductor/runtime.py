"""Run an artifact: in this process, beside the operators that it has, or by a C++ program."""

from __future__ import annotations

import ctypes
import os
import platform
import threading
import weakref
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from opsmith.compat.torch_dispatch import is_known, is_taken, parse_schema, schema_of
from opsmith.compat.torch_inductor import load_package
from opsmith.errors import ArgumentError, ArtifactError, MissingDependencyError
from opsmith.kernels.toolchain.program import build_program
from opsmith.kernels.toolchain.torch_paths import torch_paths
from opsmith.operators.core import registry
from opsmith.system import machine
from opsmith.system.scratch import make_scratch, remove
from opsmith.system.temporarily import environment
from opsmith.targets.exporting.artifact import Artifact, file_digest
from opsmith.targets.exporting.protocol import Runner

#: The environment variables of a load affect the whole process, so only one load runs at a time.
_LOCK = threading.Lock()
SOURCES = Path(__file__).with_name("runner")
PROGRAM = "opsmith-run"


def load(artifact: Artifact) -> Runner:
    """Load a package and its libraries, and return its runner."""
    details = artifact.manifest.details
    facts = details["machine"]
    machine.require(
        f"{artifact.folder} was",
        facts["architecture"],
        platform.machine(),
        facts["features"],
        "Export the model on a machine like this one",
    )
    libraries = _load_libraries(artifact)
    path = artifact.path(details["model"])
    # PyTorch unpacks the package into a temporary folder, and removes it only with the loader.
    folder = make_scratch("model")
    try:
        with _LOCK, environment({"TMPDIR": str(folder)}):
            loader = load_package(str(path))
    except BaseException as error:
        remove(folder)
        if not isinstance(error, RuntimeError):
            raise
        raise ArtifactError(f"{path} does not load: {_words(error)}") from error
    runner = AOTInductorRunner(artifact, loader, libraries)
    weakref.finalize(runner, _remove, folder, os.getpid())
    return runner


def _remove(folder: Path, owner: int) -> None:
    if os.getpid() == owner:  # A forked child must not remove its parent's folder.
        remove(folder)


class AOTInductorRunner(Runner):
    """A package, loaded with the libraries that it needs."""

    def __init__(self, artifact: Artifact, loader: Any, libraries: Sequence[ctypes.CDLL]) -> None:
        details = artifact.manifest.details
        self._artifact = artifact
        self._loader = loader
        self._libraries = libraries
        self._device = details["device"]
        self._orders = [
            None if item["order"] == sorted(item["order"]) else item["order"]
            for item in details["inputs"]
        ]
        self.written = [place for place, item in enumerate(details["inputs"]) if item["written"]]

    def run(self, inputs: Sequence[Tensor]) -> Sequence[Tensor]:
        """Run the package once."""
        given = list(inputs)
        passed = []
        for spec, tensor, order in zip(
            self._artifact.manifest.inputs, given, self._orders, strict=True
        ):
            if tensor.device.type != self._device:
                raise ArgumentError(
                    f"{self._artifact.folder}: input {spec.name!r} is on {tensor.device}, expected "
                    f"{self._device}."
                )
            passed.append(tensor if order is None else _ordered(tensor, order))
        try:
            with torch.no_grad():
                outputs: list[Tensor] = self._loader.run(passed)
        except RuntimeError as error:
            raise RuntimeError(_words(error)) from None
        for place in self.written:
            if passed[place] is not given[place]:
                given[place].copy_(passed[place])
        return outputs


def _ordered(tensor: Tensor, order: Sequence[int]) -> Tensor:
    """Copy `tensor` if needed so that `order` lists its dimensions from the outermost in memory.

    Compiled code assumes the memory layout of the example.
    """
    back = [order.index(axis) for axis in range(len(order))]
    return tensor.permute(list(order)).contiguous().permute(back)


def _words(error: RuntimeError) -> str:
    """Return the message without PyTorch's C++ backtrace."""
    return str(error).split("\nException raised from ")[0].rstrip()


def _load_libraries(artifact: Artifact) -> list[ctypes.CDLL]:
    """Load the libraries that the package needs.

    PyTorch allows one definition of an operator. A library is therefore skipped if the process
    already has its operators, from a declaration, from another artifact or from a copy of the same
    file. One that does not load, or clashes with the process's definitions, is refused.
    """
    details = artifact.manifest.details
    # Check before loading anything: an operator's definition and its kernel are two libraries.
    here = [_is_here(artifact, entry) for entry in details["libraries"]]
    handles = []
    for entry, present in zip(details["libraries"], here, strict=True):
        if present:
            for name in _operators(entry):
                operator = registry.find(name)
                if operator is not None:
                    operator.build(details["device"])
            continue
        path = artifact.path(entry["file"]).resolve()
        try:
            handles.append(ctypes.CDLL(str(path)))
        except OSError as error:
            raise ArtifactError(f"{path} does not load: {error}") from error
    return handles


def _is_here(artifact: Artifact, entry: Mapping[str, Any]) -> bool:
    """Return whether this process already has the definitions of a library."""
    if entry["call"] == "direct":
        return False
    if not entry["operator"]:  # A library that the user passed.
        return _is_loaded(artifact, entry["file"]) or _has_operators(artifact, entry)
    operators = _operators(entry)
    if not all(map(is_known, operators)):
        return False
    for name, schema in operators.items():
        _compare_schemas(artifact, name, schema)
    return True


def _operators(entry: Mapping[str, Any]) -> Mapping[str, str]:
    """Return the schemas, by name, of the operators that a library serves."""
    if not entry["operator"]:
        return {}
    found: Mapping[str, str] = entry.get("defines") or {entry["operator"]: entry["schema"]}
    return found


def _has_operators(artifact: Artifact, entry: Mapping[str, Any]) -> bool:
    """Return whether another library has already defined the operators of a user's library."""
    defines: Mapping[str, str] = entry.get("defines", {})
    missing = [name for name in defines if not is_known(name)]
    taken = [namespace for namespace in entry.get("namespaces", ()) if is_taken(namespace)]
    if defines and not missing:
        for name, schema in defines.items():
            _compare_schemas(artifact, name, schema)
        return True
    present = [name for name in defines if name not in missing]
    if present or taken:
        clash = present[0] if present else f"a TORCH_LIBRARY block for {taken[0]!r}"
        raise ArtifactError(
            f"{artifact.path(entry['file'])} defines {', '.join(defines)}. This process "
            f"has {clash} from another library, but not {missing[0]}, and PyTorch admits one "
            "definition. Load the artifact in a process without that library, or export it again "
            "with the library that is used here."
        )
    return False


def _is_loaded(artifact: Artifact, file: str) -> bool:
    """Return whether this process has loaded the same library, possibly from another path."""
    known = artifact.manifest.files[file]
    for path in _mapped_files():
        try:
            if path.stat().st_size == known.size and file_digest(path).sha256 == known.sha256:
                return True
        except OSError:  # The file was deleted in the meantime.
            continue
    return False


def _mapped_files() -> Iterator[Path]:
    with open("/proc/self/maps") as maps:
        words = (line.split(maxsplit=5) for line in maps)
        names = {word[5].rstrip("\n") for word in words if len(word) == 6}
    return (Path(name) for name in sorted(names) if name.startswith("/"))


def _compare_schemas(artifact: Artifact, name: str, schema: str) -> None:
    here = schema_of(name)
    there = parse_schema(f"{name.partition('::')[0]}::{schema}")
    if not here.is_backward_compatible_with(there) or str(here.returns) != str(there.returns):
        raise ArtifactError(
            f"{artifact.folder} was exported with another {name} than this process has.\n"
            f"  artifact: {there}\n  here:     {here}"
        )


def build_runner(sources: Path = SOURCES) -> Path:
    """Build the program against the installed PyTorch, or find it in the cache.

    Args:
        sources: the folder of ``main.cpp`` and ``CMakeLists.txt``; opsmith's own by default.
    """
    paths = torch_paths()
    if paths is None:
        raise MissingDependencyError(
            f"{PROGRAM}: needs PyTorch's libraries. Get them: pip install torch"
        )
    # The version represents the contents of PyTorch's folder.
    settings = {"TORCH_DIR": str(paths.library.parent), "TORCH_VERSION": paths.version}
    return build_program(PROGRAM, sources, settings)
