"""Write the Python package: the extension, the operators' libraries, and Python modules."""

from __future__ import annotations

import platform
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path
from typing import Any

from opsmith.kernels import KernelSource
from opsmith.operators import Operator
from opsmith.signature import NO_DEFAULT, Parameter, Signature
from opsmith.system.version import version
from opsmith.targets.exporting.artifact import OperatorUse, file_digest
from opsmith.targets.exporting.operator_export import copy_needed, kernel_of
from opsmith.targets.exporting.packages import vendoring
from opsmith.targets.exporting.packages.writer import attributes_of, head, package_name, project
from opsmith.targets.exporting.protocol import Outcome
from opsmith.targets.exporting.readme import README
from opsmith.targets.hosted import library as hosted, signature_text
from opsmith.targets.hosted.functions import HostedFunctions
from opsmith.targets.python import library

_PACKAGE = Path(__file__).parent / "package"
_OWN = "targets.python.package"
_MOVED = {
    _OWN: "",
    "targets.hosted.package": "",
    "targets.exporting.packages": "",
    "compat.torch_modules": "_torch_modules",
    "signature.wrong_arguments": "_wrong_arguments",
}

load = HostedFunctions


@dataclass(frozen=True)
class PythonFunction:
    """An operator of the package."""

    signature: Signature
    attribute: str
    path: Path


def export(operators: Sequence[Operator], folder: Path, options: Mapping[str, Any]) -> Outcome:
    """Write the package with its metadata and README."""
    name = package_name(operators, options["package"], "python")
    shared = options["backend"] == "shared"
    kernels = [kernel_of(operator, library.obstacle) for operator in operators]
    signatures = [operator.signature for operator in operators]
    attributes = attributes_of(signatures)
    native = library.build_extension(shared)
    found = [
        PythonFunction(signature, attribute, _library(kernel))
        for signature, attribute, kernel in zip(signatures, attributes, kernels, strict=True)
    ]
    package = folder / name
    package.mkdir()
    for path, text in _modules().items():
        (package / path).write_text(text, encoding="utf-8")
    for item in found:
        shutil.copyfile(item.path, package / item.path.name)
    copy_needed(kernels, package)
    shutil.copyfile(native, package / library.extension_file(shared))
    (package / "__init__.py").write_text(_init(found, native, shared), encoding="utf-8")
    (package / "__init__.pyi").write_text(_stub(found), encoding="utf-8")
    (package / "py.typed").touch()
    (folder / "pyproject.toml").write_text(_project(name, shared), encoding="utf-8")
    (folder / "setup.py").write_text(_SETUP, encoding="utf-8")
    (folder / README).write_text(_readme(name, found, shared), encoding="utf-8")
    return Outcome(
        operators=[OperatorUse(item.signature.qualname, "library") for item in found],
        versions={"nanobind": metadata.version("nanobind")},
        details={
            "package": name,
            "serves": _serves(shared),
            "libraries": {item.signature.qualname: f"{name}/{item.path.name}" for item in found},
            "written": {
                item.signature.qualname: [p.name for p in item.signature.mutated] for item in found
            },
        },
    )


def _library(kernel: KernelSource) -> Path:
    """Build the library of an operator."""
    signature = kernel.signature
    return hosted.build(f"{signature.namespace}__{signature.name}__python", [kernel], "Python")


def _modules() -> dict[str, str]:
    """Return the text of the modules that every package has, by file name."""
    own = sorted(_PACKAGE.glob("_[a-z]*.py"))
    return vendoring.modules([f"{_OWN}.{path.stem}" for path in own], moved=_MOVED, folder="")


def _serves(shared: bool) -> str:
    """Describe the Pythons that the extension is for, for messages."""
    oldest = library.oldest_python(shared)
    if oldest is not None:
        return f"CPython {oldest[0]}.{oldest[1]} and later on {platform.machine()}"
    return f"CPython {sys.version_info[0]}.{sys.version_info[1]} on {platform.machine()}"


def _init(found: Sequence[PythonFunction], native: Path, shared: bool) -> str:
    listed = ", ".join(item.signature.qualname for item in found)
    names = ", ".join(f'"{item.attribute}"' for item in found)
    lines = [
        f'"""Operators for NumPy and whatever else has DLPack: {listed}."""\n\n',
        head(),
        "from . import _arrays, _calls, _library\n",
        "from .errors import ArgumentError, OpsmithError\n\n",
        f'__all__ = ["FUNCTIONS", "ArgumentError", "OpsmithError", {names}]\n\n',
        "_native = _library.extension(\n",
        "    __name__,\n",
        f'    "{library.extension_file(shared)}",\n',
        f'    "{file_digest(native).sha256}",\n',
        f'    "{_serves(shared)}",\n',
        ")\n\n\n",
        "def _function(name, qualname, doc, file, sha256, symbol, results, parameters):\n",
        "    return _native.function(\n",
        "        name=name,\n",
        "        module=__name__,\n",
        "        doc=doc,\n",
        "        entry=_library.entry(file, sha256, symbol),\n",
        "        parameters=parameters,\n",
        "        results=results,\n",
        "        refusal=_calls.Refusal(qualname, parameters),\n",
        "        arrays=_arrays,\n",
        "    )\n\n",
    ]
    for item in found:
        signature = item.signature
        lines += [
            f"\n{item.attribute} = _function(\n",
            f'    "{item.attribute}",\n',
            f'    "{signature.qualname}",\n',
            f"    {signature_text.docstring(signature, item.attribute)!r},\n",
            f'    "{item.path.name}",\n',
            f'    "{file_digest(item.path).sha256}",\n',
            f'    "{hosted.symbol(signature)}",\n',
            f"    {len(signature.results)},\n",
            "    (\n",
            *(f"        {_parameter(parameter)},\n" for parameter in signature.parameters),
            "    ),\n",
            ")\n",
        ]
    lines.append("\nFUNCTIONS = {\n")
    lines += [f'    "{item.signature.qualname}": {item.attribute},\n' for item in found]
    lines.append("}\n")
    return "".join(lines)


def _parameter(parameter: Parameter) -> str:
    facts = [repr(parameter.name), repr(signature_text.kind(parameter)), repr(str(parameter.type))]
    flags = {
        "optional": parameter.optional,
        "written": parameter.mutated,
        "keyword_only": parameter.keyword_only,
    }
    facts += [f"{flag}=True" for flag, is_set in flags.items() if is_set]
    if parameter.default is not NO_DEFAULT:
        facts.append(f"default={signature_text.source(parameter.default)}")
    return f"_calls.FunctionParameter({', '.join(facts)})"


def _stub(found: Sequence[PythonFunction]) -> str:
    parts = [head(), signature_text.STUB_HEAD, _ERRORS]
    parts += [signature_text.stub(item.signature, item.attribute) for item in found]
    parts.append("FUNCTIONS: Mapping[str, Callable[..., Any]]\n")
    return "\n".join(parts)


_ERRORS = """\
class OpsmithError(RuntimeError):
    \"\"\"The kernel failed.\"\"\"

class ArgumentError(OpsmithError, ValueError):
    \"\"\"An argument does not fit the declaration.\"\"\"
"""


_SETUP = '''\
"""Tells pip that there is compiled code in the package."""

from setuptools import Distribution, setup


class Compiled(Distribution):
    def has_ext_modules(self):
        return True


setup(distclass=Compiled)
'''


def _project(name: str, shared: bool) -> str:
    oldest = library.oldest_python(shared)
    if oldest is None:
        requires, tag = f"=={sys.version_info[0]}.{sys.version_info[1]}.*", ""
    else:
        requires = f">={oldest[0]}.{oldest[1]}"
        tag = f'\n[tool.distutils.bdist_wheel]\npy_limited_api = "cp{oldest[0]}{oldest[1]}"\n'
    needs = ["numpy", *(["nanobind-backend>=1"] if shared else [])]
    return project(name, needs, python=requires, data=["*.pyi", "py.typed"]) + tag


def _readme(name: str, found: Sequence[PythonFunction], shared: bool) -> str:
    needs = "NumPy and nanobind-backend" if shared else "NumPy"
    example = found[0].attribute
    lines = [
        f"# {name}",
        "",
        f"Exported by opsmith {version()}. It needs {_serves(shared)}, and {needs}.",
        "",
        "```",
        "pip install .        # or put this folder on the path",
        f'python -c "import {name}; help({name}.{example})"',
        "```",
        "",
        "Functions take whatever has DLPack (arrays of NumPy, JAX or CuPy in the host's memory, "
        "tensors of PyTorch), and return what their first one is.",
    ]
    for item in found:
        text = signature_text.docstring(item.signature, item.attribute)
        shown, _, body = text.partition("\n--\n\n")
        lines += ["", f"## `{shown}`", "", "```", body.strip(), "```"]
    return "\n".join(lines) + "\n"
