"""Write ``compile_commands.json``, with which clangd and other tools compile as opsmith does."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from opsmith.errors import StorageError
from opsmith.kernels.source import KernelSource
from opsmith.kernels.toolchain.cmake import options_of
from opsmith.system.files import read_json, storing, write_atomically
from opsmith.untyped import Json

NAME = "compile_commands.json"


def write(sources: Iterable[KernelSource]) -> list[Path]:
    """Write the commands of sources beside them, with the headers they include; return the files.

    Commands that a file has for other sources stay. Only C++ gets a command: editors compile the
    other languages with flags of their own.

    Raises:
        MissingDependencyError: there is no C++ compiler.
        StorageError: a file cannot be written, or is of another kind.
    """
    folders: dict[Path, dict[str, dict[str, object]]] = {}
    for source in sources:
        command = _command(source)
        if command is not None:
            folders.setdefault(source.path.parent, {})[str(source.path)] = command
    written = []
    for folder, commands in folders.items():
        path = (folder / NAME).resolve()
        found = read_json(path, list)
        if found is None and path.exists():
            raise StorageError(f"{path} is no list of commands, and is not overwritten. Move it.")
        others = [
            entry
            for entry in found or []
            if isinstance(entry, dict) and entry.get("file") not in commands
        ]
        with storing(path):
            text = json.dumps([*others, *commands.values()], indent=2)
            write_atomically(path, f"{text}\n")
        written.append(path)
    return written


def _command(source: KernelSource) -> dict[str, Json] | None:
    """Return the entry of a source, whose generated headers are written; `None` unless in C++."""
    recipe = source.language.library(source)
    unit = next(one for one in recipe.given if one.source == source.path)
    if unit.language is not None or unit.compiler is not None:
        return None
    unit.write()
    words = [f"-I{unit.written}", *options_of(unit, recipe.tools)]
    return {
        "directory": str(source.path.parent),
        "file": str(source.path),
        "arguments": [recipe.tools.compiler.path, *words, "-c", str(source.path)],
    }
