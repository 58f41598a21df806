"""Load an artifact's libraries into this process, beside the operators that it already has."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from opsmith.compat.torch_dispatch import is_known, is_taken, parse_schema, schema_of
from opsmith.compat.torch_library import class_maker
from opsmith.errors import ArtifactError
from opsmith.operators.core import registry
from opsmith.targets.exporting.artifact import Artifact, file_digest


def load_libraries(artifact: Artifact) -> list[ctypes.CDLL]:
    """Load the libraries that the package needs.

    PyTorch allows one definition of an operator. A library is therefore skipped if the process
    already has its operators, from a declaration, from another artifact or from a copy of the same
    file.

    Raises:
        ArtifactError: a library does not load, or its definitions clash with the process's.
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
        if entry["call"] == "class":
            _require_defined(handles[-1], entry["operator"])
    return handles


def _is_here(artifact: Artifact, entry: Mapping[str, Any]) -> bool:
    """Return whether this process already has the definitions of a library."""
    if entry["call"] == "direct":
        return False
    if entry["call"] == "class":
        return _has_class(entry["operator"])
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
    if entry["call"] == "class" or not entry["operator"]:
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


def _has_class(name: str) -> bool:
    namespace, _, short = name.partition("::")
    try:
        class_maker(namespace, short)
    except RuntimeError:
        return False
    return True


def _require_defined(library: ctypes.CDLL, name: str) -> None:
    """Raise the problem, if any, that a library had in defining its class."""
    function = getattr(library, f"opsmith_class_problem__{name.replace('::', '__')}", None)
    if function is not None:
        function.restype = ctypes.c_char_p
        problem = function()
        if problem is not None:
            raise ArtifactError(problem.decode(errors="replace"))


def _compare_schemas(artifact: Artifact, name: str, schema: str) -> None:
    here = schema_of(name)
    there = parse_schema(f"{name.partition('::')[0]}::{schema}")
    if not here.is_backward_compatible_with(there) or str(here.returns) != str(there.returns):
        raise ArtifactError(
            f"{artifact.folder} was exported with another {name} than this process has.\n"
            f"  artifact: {there}\n  here:     {here}"
        )
