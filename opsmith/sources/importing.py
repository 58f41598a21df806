"""Find the operators declared by a file or module that the user named (`x.py`, `pkg.module`)."""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import importlib.util
import sys
import sysconfig
import traceback
import warnings
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from opsmith.errors import LoadError, OpsmithError
from opsmith.operators.adoption.adopted import all_adopted
from opsmith.operators.core import registry
from opsmith.operators.core.operator import Operator
from opsmith.operators.core.source_location import shown_path
from opsmith.signature.suggestions import annotation_slip

#: Whether this context imports a file of the user's, and whether this process imports one that its
#: parent has imported. A thread that the file starts is in no context of its parent's.
_importing = ContextVar("importing", default=False)
_imports_again = False


class ImportEndedError(BaseException):
    """Ends the import of a file at a call that checks or times; what stands above is declared.

    No `Exception`, so that the file does not handle it.
    """


def end_import(what: str) -> None:
    """End the import of a user's file, if this is called while that file is imported.

    The process that imports the file only needs what it declares. It would call this again in each
    process that it starts.

    Args:
        what: the function that is called.
    """
    if _imports_again or _importing.get():
        raise ImportEndedError(
            f"{what} is called while this file is imported, which ends the import here. Put the "
            'call below if __name__ == "__main__":'
        )


@dataclass(frozen=True)
class Imported:
    """An imported file or module, and the operators that it declares."""

    source: str
    module: ModuleType
    operators: tuple[Operator, ...]


def import_all(sources: list[str]) -> list[Operator]:
    """Import every source and return all their operators, each once, in the order declared.

    Args:
        sources: paths of Python files, or names of modules; `FILE.py::OPERATOR` selects one
            operator of a file, named with or without its namespace.

    Raises:
        LoadError: a source cannot be imported, or declares no operator, or none of that name.
    """
    return list(dict.fromkeys(operator for source in sources for operator in _named_by(source)))


def _named_by(source: str) -> tuple[Operator, ...]:
    file, _, name = source.partition("::")
    operators = import_operators(file).operators
    if not name:
        return operators
    found = tuple(one for one in operators if name in (one.name, one.signature.name))
    if not found:
        there = ", ".join(one.signature.name for one in operators)
        raise LoadError(f"{file} declares no operator {name!r}; it declares {there}")
    return found


def import_operators(source: str) -> Imported:
    """Import one file or module and find the operators that it declares.

    A file in a package is imported by the package's name, so that its relative imports work.
    Operators that a file imports from elsewhere count only if the file declares none itself.

    Args:
        source: the path of a Python file, or the name of a module.
    """
    before = set(_everything())
    module = import_module(source)
    operators = declared_by(module) or tuple(
        operator for operator in _everything() if operator not in before
    )
    if not operators:
        advice = "declare one with @opsmith.op(...)"
        if hasattr(module, "__path__"):
            advice = f"name the files in it that do, or import them in {module.__file__}"
        raise LoadError(f"{source} declares no operator; {advice}")
    return Imported(source, module, operators)


def declared_by(module: ModuleType) -> tuple[Operator, ...]:
    """Return the operators that a module or package declares, or if none, those it contains."""
    everything = _everything()
    own = [op for op in everything if _is_within(op.reference.__module__ or "", module.__name__)]
    return tuple(own or [op for op in everything if any(op is v for v in vars(module).values())])


def _everything() -> tuple[Operator, ...]:
    """Return all operators declared or adopted in this process."""
    return (*registry.all_operators(), *all_adopted())


def user_files() -> list[Path]:
    """Return the files of imported modules that are neither the environment's nor opsmith's."""
    standard = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib")]
    installed = [p for p in sys.path if "site-packages" in p or "dist-packages" in p]
    foreign = {Path(p).resolve() for p in (*standard, *installed)}
    foreign |= {Path(__file__).resolve().parents[2] / name for name in ("opsmith", "emulators")}
    files = (getattr(module, "__file__", None) for module in list(sys.modules.values()))
    paths = [Path(file) for file in files if isinstance(file, str) and file.endswith(".py")]
    # Debian links a file in the standard library's folder to a file elsewhere.
    found = {path.resolve() for path in paths if path.parent.resolve() not in foreign}
    return sorted(path for path in found if foreign.isdisjoint(path.parents) and path.is_file())


def import_module(source: str) -> ModuleType:
    """Import one file or module.

    Raises:
        LoadError: the source does not exist, or importing it raised.
    """
    token = _importing.set(True)
    try:
        return _import_file(Path(source), source) if _is_path(source) else _import_module(source)
    finally:
        _importing.reset(token)


def _is_path(source: str) -> bool:
    path = Path(source)
    if path.is_dir():
        # The folder of a package may also be meant as a module name.
        return not (path / "__init__.py").is_file() or not _is_module_name(source)
    return source.endswith(".py") or path.is_file() or not _is_module_name(source)


def _is_module_name(text: str) -> bool:
    return all(part.isidentifier() for part in text.split("."))


def _is_within(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


def _import_file(path: Path, source: str) -> ModuleType:
    if path.is_dir():
        # The layout that `opsmith new` creates: my_op/my_op.py.
        named = path.resolve()
        named = named / f"{named.name}.py"
        if named.is_file():
            return _import_file(named, str(path / named.name))
        if (path / "__init__.py").is_file():
            return _import_file(path / "__init__.py", source)
        files = sorted(file.name for file in path.glob("*.py") if file.name != "__init__.py")
        inside = f"; in it: {', '.join(files)}" if files else ""
        raise LoadError(f"{source} is a folder; name a Python file{inside}")
    if not path.is_file():
        raise LoadError(f"no such file: {source}")
    if path.suffix != ".py":
        raise LoadError(f"{source} is not a Python file")
    path = path.resolve()
    root, name = module_name(path)
    _prepend_to_path(root)
    loaded = sys.modules.get(name)
    if loaded is not None and _is_file_of(loaded, path):
        return loaded
    try:
        return _import_single_file(name, path)
    except (Exception, SystemExit, ImportEndedError) as error:
        raise raised(source, error) from error


def module_name(path: Path) -> tuple[Path, str]:
    """Return the folder to search and the dotted name by which `path` is imported from it."""
    root, parts = path.parent, [path.stem]
    while (root / "__init__.py").is_file():
        parts.insert(0, root.name)
        root = root.parent
    if len(parts) > 1 and parts[-1] == "__init__":
        parts.pop()
    return root, ".".join(parts)


def _import_single_file(name: str, path: Path) -> ModuleType:
    """Import a file by its name, or by a unique name if outside packages its stem means another."""
    found = importlib.util.find_spec(name) if name not in sys.modules else None
    unknown = found is None or found.origin is None or Path(found.origin).resolve() != path
    if "." not in name and unknown:
        name = f"{name}_{hashlib.sha256(bytes(path)).hexdigest()[:8]}"
    return sys.modules.get(name) or _load(name, path)


def import_again(name: str, path: Path) -> None:
    """Import in this process a file that another process imported as `name` from `path`."""
    global _imports_again
    # `__main__` is this process's script; operators are found by their own names.
    name = "__opsmith_main__" if name == "__main__" else name
    _imports_again = True
    try:
        with contextlib.suppress(ImportError, ValueError):
            importlib.util.find_spec(name)  # imports the packages that the file is in
        if name not in sys.modules:
            _load(name, path)
    finally:
        _imports_again = False


def _load(name: str, path: Path) -> ModuleType:
    """Run a file as the module `name`."""
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise LoadError(f"{path} is not a Python file")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as error:
        line = _ended_at(error, path) if isinstance(error, ImportEndedError) else 0
        if not line:
            del sys.modules[name]
            raise
        if not _imports_again:
            warnings.warn_explicit(str(error), RuntimeWarning, str(path), line)
    if "." in name:
        package, _, own = name.rpartition(".")
        setattr(sys.modules[package], own, module)
    return module


def _ended_at(error: ImportEndedError, path: Path) -> int:
    """Return the line of a file whose import ended; 0 if it was that of a file it imports."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.name == "<module>"]
    return (frames[-1].lineno or 0) if frames[-1].filename == str(path) else 0


def _import_module(name: str) -> ModuleType:
    _prepend_to_path(Path.cwd())
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is not None and _is_within(name, error.name):
            raise LoadError(f"no file {name}, and no module named {error.name!r}") from error
        raise raised(name, error) from error
    except (Exception, SystemExit, ImportEndedError) as error:
        raise raised(name, error) from error


def _prepend_to_path(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))


def _is_file_of(module: ModuleType, path: Path) -> bool:
    file = getattr(module, "__file__", None)
    return file is not None and Path(file).resolve() == path


def raised(source: str, error: BaseException) -> LoadError:
    """Return an error that says what importing `source` raised, and at which line of the user's."""
    if isinstance(error, SyntaxError) and error.filename is not None:
        return LoadError(f"{shown_path(error.filename)}:{error.lineno}: {error.msg}")
    where = source
    for frame in traceback.extract_tb(error.__traceback__):
        if _is_users(frame.filename):
            where = f"{shown_path(frame.filename)}:{frame.lineno}"
    if isinstance(error, OpsmithError | ImportEndedError):
        return LoadError(f"{where}: {error}")
    slip = annotation_slip(error)
    own = f"{type(error).__name__}: {error}"
    return LoadError(f"{where}: {slip} ({own})" if slip else f"{where}: {own}")


def _is_users(file: str) -> bool:
    """Return whether a frame's file is the user's: not opsmith's, installed, or Python's own."""
    installed = (sysconfig.get_path(name) for name in ("stdlib", "purelib", "platlib"))
    theirs = [Path(__file__).parents[1], *map(Path, installed)]
    if "site-packages" in Path(file).parts:  # of an environment that this one builds on
        return False
    return Path(file).is_file() and not any(Path(file).is_relative_to(path) for path in theirs)
