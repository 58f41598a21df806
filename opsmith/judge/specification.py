"""The specification in the judge's process: read by value, and its copy imported once."""

from __future__ import annotations

import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from pathlib import Path
from types import ModuleType

from opsmith.errors import LoadError
from opsmith.judge.closed import without_bytecode
from opsmith.judge.definition import spec_of
from opsmith.judge.snapshot import Files, Snapshot, TooLargeError, collect
from opsmith.operators import Operator
from opsmith.sources.importing import import_operators
from opsmith.system.scratch import held_folder


@dataclass(frozen=True)
class _Imported:
    operators: tuple[Operator, ...]
    modules: dict[str, ModuleType]


#: The specifications that this process imported, by their contents.
_known: dict[tuple[tuple[str, str], ...], _Imported] = {}


def read_spec(path: Path) -> Files:
    """Read a specification, or the specification that a definition states."""
    try:
        if path.suffix != ".json":
            return collect(path)
        with held_folder(Path(tempfile.gettempdir()), "tmp", "") as folder:
            digest = sha256(path.read_bytes()).hexdigest()
            return replace(collect(spec_of(path, folder)), digests={str(path.resolve()): digest})
    except TooLargeError as error:
        raise LoadError(str(error)) from error


@contextmanager
def imported(files: Snapshot) -> Iterator[tuple[Operator, ...]]:
    """Import the copy of a specification, and yield the operators that it declares.

    The modules of the copy are found under their names in this block only, also if modules of the
    originals have the same names.

    Args:
        files: the copy.

    Raises:
        LoadError: the specification cannot be imported, or declares no operator.
    """
    before = dict(sys.modules)
    path = list(sys.path)
    for name, module in before.items():
        if getattr(module, "__file__", None) in files.digests:
            del sys.modules[name]
    key = tuple(sorted(files.digests.items()))
    try:
        if key not in _known:
            _known[key] = _import(files)
        sys.modules.update(_known[key].modules)
        yield _known[key].operators
    finally:
        for name in _known[key].modules if key in _known else ():
            sys.modules.pop(name, None)
        sys.modules.update({name: one for name, one in before.items() if name not in sys.modules})
        sys.path[:] = path


def _import(files: Snapshot) -> _Imported:
    with without_bytecode():
        operators = import_operators(str(files.file)).operators
    inside = f"{files.root}/"
    modules = {
        name: module
        for name, module in sys.modules.items()
        if str(getattr(module, "__file__", "")).startswith(inside)
    }
    return _Imported(operators, modules)
