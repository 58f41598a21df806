"""Write the library of a tvm-ffi module, and the package that calls its functions from Python."""

from __future__ import annotations

import shutil
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from opsmith.kernels import HOST, Generated, KernelSource, Unit, adapters
from opsmith.operators import Operator
from opsmith.operators.core.operator import Kernel
from opsmith.signature import Signature
from opsmith.targets.exporting import operator_export
from opsmith.targets.exporting.artifact import OperatorUse
from opsmith.targets.exporting.packages import vendoring
from opsmith.targets.exporting.packages.writer import attributes_of, head, package_name, project
from opsmith.targets.exporting.protocol import Outcome
from opsmith.targets.hosted import library, signature_text
from opsmith.targets.hosted.functions import HostedFunctions

_HERE = Path(__file__).parent
_TEMPLATE = _HERE / "module.cpp.j2"
_NATIVE = _HERE / "native"
_MOVED = {
    "targets.tvm_ffi.package": "",
    "targets.hosted.package": "",
    "compat.torch_modules": "_torch_modules",
}

load = HostedFunctions


def obstacle(operator: Operator, kernel: Kernel | None) -> str | None:
    """Return why tvm-ffi cannot call the operator by this kernel, or `None` if it can."""
    return operator_export.obstacle(operator, kernel, "tvm-ffi")


def export(operators: Sequence[Operator], folder: Path, options: Mapping[str, Any]) -> Outcome:
    """Write the package with its library and metadata."""
    name = package_name(operators, options["package"], "tvm_ffi")
    every = _with_backwards(operators)
    signatures = [operator.signature for operator in every]
    functions = dict(zip(attributes_of(signatures), signatures, strict=True))
    sources = [operator_export.kernel_of(operator, obstacle) for operator in every]
    built = _build(name, functions, sources)
    package = folder / name
    package.mkdir()
    modules = vendoring.modules(["targets.tvm_ffi.package._calls"], moved=_MOVED, folder="")
    for path, text in {**modules, "__init__.py": _init(functions, built.name)}.items():
        (package / path).write_text(text, encoding="utf-8")
    shutil.copyfile(built, package / built.name)
    operator_export.copy_needed(sources, package)
    (folder / "pyproject.toml").write_text(project(name, ["apache-tvm-ffi", "numpy"]))
    names = {signature.qualname: attribute for attribute, signature in functions.items()}
    return Outcome(
        operators=[OperatorUse(name, "library") for name in names],
        versions={"apache-tvm-ffi": metadata.version("apache-tvm-ffi")},
        details={
            "package": name,
            "attributes": names,
            "libraries": dict.fromkeys(names, f"{name}/{built.name}"),
            "written": {s.qualname: [p.name for p in s.mutated] for s in signatures},
        },
    )


def _with_backwards(operators: Sequence[Operator]) -> list[Operator]:
    """Return the operators, then their declared backwards, as far as tvm-ffi can call these."""
    found = list(operators)
    for operator in found:
        declared = getattr(operator, "declared_backward", None)
        if declared is not None and declared.backward not in found:
            backward = declared.backward
            found += [] if obstacle(backward, backward.kernels.get(HOST)) else [backward]
    return found


def _build(name: str, functions: Mapping[str, Signature], sources: Sequence[KernelSource]) -> Path:
    from tvm_ffi import libinfo

    first = sources[0].signature
    includes = (_NATIVE, library.INCLUDE, Path(libinfo.find_include_path()))
    call = Unit("tvm_ffi", _NATIVE / "call.cpp", Generated.of(None), includes, flags=("-O3",))
    text = adapters.render(
        _TEMPLATE, first, functions=functions, symbol=library.symbol, kind=signature_text.kind
    )
    table = Unit(name, "module.cpp", Generated.of({"module.cpp": text}), includes)
    links = [libinfo.find_libtvm_ffi()]
    return library.build(name, sources, "tvm-ffi", objects=[call, table], link_libraries=links)


def _init(functions: Mapping[str, Signature], library: str) -> str:
    listed = ", ".join(signature.qualname for signature in functions.values())
    lines = [
        f'"""Operators for whatever has DLPack, by tvm-ffi: {listed}."""\n\n',
        head(),
        "from pathlib import Path\n\n",
        "import tvm_ffi\n\n",
        "from ._calls import converted as _converted, refuse as _refuse\n",
        "from ._calls import shows_more as _shows_more\n\n",
        "_Tensor = tvm_ffi.Tensor\n",
        f'MODULE = tvm_ffi.load_module(Path(__file__).parent / "{library}")\n',
        "FUNCTIONS = {}\n",
    ]
    for name, signature in functions.items():
        shown = ", ".join(signature_text.in_order(signature, signature_text.with_default))
        call = ", ".join(parameter.name for parameter in signature.parameters)
        tensors = ", ".join(parameter.name for parameter in signature.tensors)
        _, _, doc = signature_text.docstring(signature, name).partition("\n--\n\n")
        lines += [
            f'\n_{name} = MODULE["{name}"]\n\n\n',
            f"def {name}({shown}):\n",
            *(f"    {line}\n" for line in _refusals(signature)),
            f"    _made = _{name}({call})\n",
            f"    {_returned(signature, tensors)}\n",
            f"\n\n{name}.__doc__ = {doc!r}\n",
            f'FUNCTIONS["{signature.qualname}"] = {name}\n',
        ]
    return "".join(lines)


def _returned(signature: Signature, tensors: str) -> str:
    if len(signature.results) > 1:
        return f"return tuple(_converted(_one, {tensors}) for _one in _made)"
    return f"return _converted(_made, {tensors}) if _made.__class__ is _Tensor else _made"


def _refusals(signature: Signature) -> list[str]:
    """Return statements that look at tensors, quickly for those that are single and only read."""
    found = []
    for parameter in signature.tensors:
        name, slow = parameter.name, parameter.mutated or parameter.is_tensor_list
        condition = "" if slow else f"if _shows_more({name}): "
        found.append(
            f'{condition}_refuse("{signature.qualname}", {parameter.mutated}, {name}={name})'
        )
    return found
