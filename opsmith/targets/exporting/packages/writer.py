"""Write and import Python packages of operators: their names, their texts, and loading."""

from __future__ import annotations

import importlib.util
import itertools
import keyword
import sys
from collections.abc import Sequence
from types import ModuleType

from opsmith import errors
from opsmith.errors import ArtifactError, ExportError
from opsmith.operators import Operator
from opsmith.signature import Signature
from opsmith.system.version import version
from opsmith.targets.exporting.artifact import Artifact
from opsmith.targets.exporting.protocol import OperatorRunner

_count = itertools.count()


def package_name(operators: Sequence[Operator], chosen: str | None, suffix: str) -> str:
    """Return the package's name: `chosen`, or else ``<namespace>_<suffix>``."""
    if chosen is None:
        return f"{operators[0].signature.namespace}_{suffix}"
    if not chosen.isidentifier() or keyword.iskeyword(chosen):
        raise ExportError(f"package={chosen!r} is not the name of a Python package")
    return chosen


def attributes_of(signatures: Sequence[Signature]) -> list[str]:
    """Return the operators' names in the package, with the namespace where two are equal."""
    short = [signature.name for signature in signatures]
    return [
        name if short.count(name) == 1 else f"{signature.namespace}_{name}"
        for name, signature in zip(short, signatures, strict=True)
    ]


def head() -> str:
    """Return the comment at the head of every generated module."""
    return f"# Written by opsmith {version()} from the declarations. Do not edit: export again.\n"


def project(
    name: str, dependencies: Sequence[str], *, python: str = "", data: Sequence[str] = ()
) -> str:
    """Return the ``pyproject.toml`` with which pip installs an artifact's folder.

    Args:
        name: name of the package.
        dependencies: its requirements, in pip's syntax.
        python: the required versions of Python; by default all.
        data: patterns of the package's files other than modules and libraries.
    """

    def listed(items: Sequence[str]) -> str:
        return ", ".join(f'"{item}"' for item in items)

    requires = f'requires-python = "{python}"\n' if python else ""
    return f"""\
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "{name.replace("_", "-")}"
version = "0"
{requires}dependencies = [{listed(dependencies)}]

[tool.setuptools.packages.find]
include = [{listed([name, f"{name}.*"])}]

[tool.setuptools.package-data]
"{name}" = [{listed(["*.so", "*.dylib", *data])}]
"""


class PackageFunctions(OperatorRunner):
    """The functions of an artifact's package; see `imported`."""

    def __init__(self, artifact: Artifact, errors_module: str) -> None:
        self.module = imported(artifact, artifact.manifest.details["package"], errors_module)
        self.functions = self.module.FUNCTIONS


def imported(artifact: Artifact, package: str, errors_module: str) -> ModuleType:
    """Import a package of an artifact under a unique name, since two artifacts may share a name.

    Args:
        artifact: an open artifact, whose files are verified.
        package: name of the package in the artifact.
        errors_module: the package's module of opsmith's errors; opsmith's own module is used in its
            place.

    Raises:
        ArtifactError: the package cannot be imported here.
    """
    path = artifact.path(f"{package}/__init__.py")
    name = f"_opsmith_artifact_{next(_count)}_{package}"
    spec = importlib.util.spec_from_file_location(
        name, path, submodule_search_locations=[str(path.parent)]
    )
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    sys.modules[f"{name}.{errors_module}"] = errors
    before, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[name]
        raise ArtifactError(f"{artifact.folder} cannot be loaded: {error}") from error
    finally:
        sys.dont_write_bytecode = before
    return module
