"""What targets that write a Python package of operators share: its names, texts, and loading."""

from __future__ import annotations

import importlib.util
import itertools
import keyword
import sys
from collections.abc import Sequence
from types import ModuleType

from opsmith import errors
from opsmith.errors import ArtifactError, ExportError
from opsmith.kernels.build.version import version
from opsmith.operators import Operator
from opsmith.signature import Signature
from opsmith.targets.exporting.artifact import Artifact

_count = itertools.count()


def package_name(operators: Sequence[Operator], chosen: str | None, suffix: str) -> str:
    """The package's name: `chosen`, or else ``<namespace>_<suffix>``.

    Raises:
        ExportError: `chosen` cannot be one.
    """
    if chosen is None:
        return f"{operators[0].signature.namespace}_{suffix}"
    if not chosen.isidentifier() or keyword.iskeyword(chosen):
        raise ExportError(f"package={chosen!r} is not the name of a Python package")
    return chosen


def attributes_of(signatures: Sequence[Signature]) -> list[str]:
    """The operators' names in the package, with the namespace before those that two have."""
    short = [signature.name for signature in signatures]
    return [
        name if short.count(name) == 1 else f"{signature.namespace}_{name}"
        for name, signature in zip(short, signatures, strict=True)
    ]


def head() -> str:
    """The comment at the head of every module that is written from declarations."""
    return f"# Written by opsmith {version()} from the declarations. Do not edit: export again.\n"


def project(
    name: str, dependencies: Sequence[str], *, python: str = "", data: Sequence[str] = ()
) -> str:
    """The ``pyproject.toml`` with which pip installs an artifact's folder.

    Args:
        name: the package's.
        dependencies: what it needs, as pip has it.
        python: which versions of Python it is for; by default all.
        data: patterns of its files beside modules and libraries.
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


def imported(artifact: Artifact, package: str, errors_module: str) -> ModuleType:
    """A package of an artifact, under a name of its own: two artifacts may have one of one name.

    Args:
        artifact: opened, so its files are those that were exported.
        package: its name in the artifact.
        errors_module: where in it opsmith's errors are; here they are opsmith's own.

    Raises:
        ArtifactError: it cannot be imported here.
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
