"""Read the source of a wheel: a package with a ``pyproject.toml``, or one file of operators."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from opsmith.errors import ExportError, MissingDependencyError, OptionError
from opsmith.operators import Operator
from opsmith.sources.importing import declared_by, import_module

_LEFT_OUT = ("__pycache__", ".git")
_HEADERS = ("*.h", "*.hpp", "*.cuh")
_NEEDED = ("torch>=2.10", "numpy", "jaxtyping>=0.3")


@dataclass(frozen=True)
class Project:
    """A package that declares operators.

    Attributes:
        name: the distribution's name.
        version: the distribution's version.
        package: the name by which users import the package.
        module: the name by which it was imported here.
        folder: the folder to which paths in the ``pyproject.toml`` are relative.
        root: the folder of the package's files.
        files: the files, relative to `root`, with their paths in the installed package.
        operators: the operators that the package declares when it is imported.
        table: the table ``[project]`` of the ``pyproject.toml``, if it exists.
        modules: modules that declare operators, but are not imported with the package.
        gates: further releases of PyTorch to build gates for.
    """

    name: str
    version: str
    package: str
    module: str
    folder: Path
    root: Path
    files: dict[Path, Path]
    operators: tuple[Operator, ...]
    table: dict[str, Any] = field(default_factory=dict)
    modules: tuple[str, ...] = ()
    gates: tuple[str, ...] = ()

    @property
    def stem(self) -> str:
        """Return the common part of the file names of its distributions."""
        return f"{re.sub(r'[-_.]+', '_', self.name).lower()}-{self.version}"

    def place_of(self, path: Path) -> Path:
        """Return the path of a file in the installed package."""
        if not self.holds(path):
            raise ExportError(
                f"{path}: lies outside the package {self.package} ({self.root}), so a wheel "
                "cannot carry it. Move it into the package."
            )
        return self.files[path.relative_to(self.root)]

    def holds(self, path: Path) -> bool:
        """Return whether a file belongs to the package."""
        return path.is_relative_to(self.root) and path.relative_to(self.root) in self.files

    def about(self, *, needs_opsmith: bool = False) -> dict[str, bytes]:
        """Return the ``.dist-info`` files that describe the package and its requirements, by name.

        Args:
            needs_opsmith: whether to require opsmith.
        """
        import pyproject_metadata

        table = {"name": self.name, "version": self.version, **self.table}
        given = list(table.get("dependencies", []))
        kept = [one for one in given if needs_opsmith or not _named([one], "opsmith")]
        table["dependencies"] = [*kept, *_missing(_NEEDED, given)]
        table.setdefault("requires-python", ">=3.10")
        try:
            read = pyproject_metadata.StandardMetadata.from_pyproject(
                {"project": table}, self.folder
            )
        except pyproject_metadata.ConfigurationError as error:
            raise ExportError(f"pyproject.toml: {error}") from error
        found = {"METADATA": bytes(read.as_rfc822())}
        for path in read.license_files or ():
            found[f"licenses/{path.as_posix()}"] = (self.folder / path).read_bytes()
        groups = {
            "console_scripts": read.scripts,
            "gui_scripts": read.gui_scripts,
            **read.entrypoints,
        }
        lines = [
            line
            for group, entries in groups.items()
            if entries
            for line in (f"[{group}]", *(f"{k} = {v}" for k, v in entries.items()), "")
        ]
        if lines:
            found["entry_points.txt"] = "\n".join(lines).encode()
        return found


def read(source: Path, name: str | None = None, version: str | None = None) -> Project:
    """Return the project of a folder with a ``pyproject.toml``, or of one Python file.

    Args:
        source: the folder or file.
        name: the distribution's name, for a file; by default the file's name.
        version: the distribution's version, for a file; by default 0.1.0.

    Raises:
        OptionError: `source` is neither.
        ExportError: `source` declares no operator.
    """
    source = source.resolve()
    if source.is_file() and source.suffix == ".py":
        return _of_file(source, name, version)
    if (source / "pyproject.toml").is_file():
        return _of_folder(source)
    raise OptionError(
        f"{source}: is neither a Python file nor a folder with a pyproject.toml. "
        "`opsmith wheel op.py` makes a wheel of one file."
    )


def _of_file(path: Path, name: str | None, version: str | None) -> Project:
    module = import_module(str(path))
    operators = declared_by(module)
    if not operators:
        raise ExportError(f"{path}: declares no operator; declare one with @opsmith.op(...)")
    files = {Path(path.name): Path("__init__.py")}
    project = Project(
        name or path.stem.replace("_", "-"),
        version or "0.1.0",
        path.stem,
        module.__name__,
        path.parent,
        path.parent,
        files,
        operators,
    )
    kernels = [kernel for operator in operators for kernel in operator.kernels.values()]
    beside = [kernel.source.path for kernel in kernels if kernel.source is not None]
    for pattern in _HEADERS if beside else ():
        beside += path.parent.glob(pattern)
    for file in sorted(beside):
        if file.is_relative_to(path.parent):
            files[file.relative_to(path.parent)] = file.relative_to(path.parent)
    return project


def _of_folder(folder: Path) -> Project:
    try:
        import tomllib
    except ImportError:  # Python 3.10
        import tomli as tomllib
    text = (folder / "pyproject.toml").read_text(encoding="utf-8")
    everything = tomllib.loads(text)
    table, own = everything.get("project", {}), everything.get("tool", {}).get("opsmith", {})
    for key in ("name", "version"):
        if key not in table:
            raise ExportError(f"{folder / 'pyproject.toml'}: [project] has no {key}")
    package = own.get("package", table["name"].replace("-", "_"))
    # The folder itself may be the package, so search its parent too.
    places = [place / package for place in (folder / "src", folder, folder.parent)]
    roots = [place for place in places if place.is_dir() and place.is_relative_to(folder)]
    if not roots:
        raise ExportError(
            f"{folder}: there is no package {package}/ or src/{package}/, which the project's "
            f"name {table['name']!r} implies; name another one in [tool.opsmith] package"
        )
    root = roots[0]
    module = import_module(str(root / "__init__.py"))
    for name in (modules := tuple(own.get("modules", ()))):
        import_module(name)
    operators = declared_by(module)
    if not operators:
        raise ExportError(
            f"{package}: importing it declares no operator. Import the modules that do in "
            f"{root / '__init__.py'}, or name them in [tool.opsmith] modules."
        )
    everywhere = {path for path in root.rglob("*") if path.is_file()}
    files = {path.relative_to(root) for path in everywhere - {folder / "pyproject.toml"}}
    kept = {path: path for path in sorted(files) if not set(path.parts) & set(_LEFT_OUT)}
    return Project(
        table["name"],
        table["version"],
        package,
        module.__name__,
        folder,
        root,
        kept,
        operators,
        table,
        modules,
        tuple(own.get("gates", ())),
    )


def _named(requirements: Iterable[str], name: str) -> bool:
    from packaging.requirements import Requirement

    return any(Requirement(one).name == name for one in requirements)


def _missing(needed: Sequence[str], given: Sequence[str]) -> list[str]:
    from packaging.requirements import Requirement

    return [one for one in needed if not _named(given, Requirement(one).name)]


def require_tools(*, cross: bool) -> None:
    """Refuse to go on without the tools that build wheels.

    Args:
        cross: whether to compile for other machines.
    """
    import importlib.util

    for module in ("pyproject_metadata", "auditwheel", *(["ziglang"] if cross else [])):
        if importlib.util.find_spec(module) is None:
            raise MissingDependencyError(
                f"opsmith wheel needs {module}, which is not installed: "
                'pip install "opsmith[wheel]"'
            )
