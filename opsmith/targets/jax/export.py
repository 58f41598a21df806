"""Write the Python package: declarations, libraries, derivatives, and the functions around them."""

from __future__ import annotations

import pprint
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from opsmith import kernels
from opsmith.kernels import HOST
from opsmith.operators import Operator
from opsmith.signature import Signature
from opsmith.system.version import version
from opsmith.targets.exporting.artifact import OperatorUse, file_digest
from opsmith.targets.exporting.operator_export import kernel_of
from opsmith.targets.exporting.packages.writer import attributes_of, head, package_name, project
from opsmith.targets.exporting.protocol import Outcome
from opsmith.targets.exporting.readme import README
from opsmith.targets.jax import library, vendor
from opsmith.targets.jax.derivatives import Derivative, derivative


@dataclass(frozen=True)
class JaxFunction:
    """An operator of the package.

    Attributes:
        operator: the operator.
        attribute: its name in the package.
        path: path of its library.
        gradient: its derivative, or the reason why it has none.
    """

    operator: Operator
    attribute: str
    path: Path
    gradient: Derivative | str

    @property
    def signature(self) -> Signature:
        """Return the operator's signature."""
        return self.operator.signature


def export(operators: Sequence[Operator], folder: Path, options: Mapping[str, Any]) -> Outcome:
    """Write the package with its metadata and README."""
    import jax
    import jaxlib

    name = package_name(operators, options["package"], "jax")
    for operator in operators:  # Refuse operators before the slow part begins.
        kernel_of(operator, library.obstacle)
    gradients = _gradients(operators)
    attributes = attributes_of([operator.signature for operator in gradients])
    sources = [kernel_of(operator, library.obstacle) for operator in gradients]
    found = [
        JaxFunction(operator, attribute, library.build(source), gradients[operator])
        for operator, attribute, source in zip(gradients, attributes, sources, strict=True)
    ]
    package = folder / name
    for place, text in vendor.modules().items():
        path = package / place
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    for item in found:
        shutil.copyfile(item.path, package / item.path.name)
    (package / "declarations.py").write_text(_declarations(found), encoding="utf-8")
    (package / "gradients.py").write_text(_gradients_text(found), encoding="utf-8")
    (package / "__init__.py").write_text(_init(found), encoding="utf-8")
    (folder / "pyproject.toml").write_text(project(name, ["jax", "numpy"]), encoding="utf-8")
    (folder / README).write_text(_readme(name, found), encoding="utf-8")
    return Outcome(
        operators=[OperatorUse(item.operator.name, "library", note=_note(item)) for item in found],
        versions={"jax": jax.__version__, "jaxlib": jaxlib.__version__},
        details={"package": name},
    )


def _gradients(operators: Sequence[Operator]) -> dict[Operator, Derivative | str]:
    """Return the derivatives of the operators, and of operators that derivatives call."""
    found: dict[Operator, Derivative | str] = {}
    waiting = list(operators)
    for operator in waiting:
        if operator not in found:
            found[operator] = derivative(operator)
            waiting += getattr(found[operator], "calls", ())
    return found


def _note(item: JaxFunction) -> str:
    if isinstance(item.gradient, str):
        return item.gradient.rstrip(".")
    calls = ", ".join(operator.name for operator in item.gradient.calls)
    how = "its backward" if item.gradient.how == "ByHand" else "its reference"
    lacking = item.gradient.lacking
    return "".join(
        [
            f"gradient by {how}",
            f", which calls {calls}" if calls else "",
            f"; not for every call: for some, it {lacking}" if lacking else "",
        ]
    )


def _declarations(found: Sequence[JaxFunction]) -> str:
    """Return the signatures as Python source: their ``repr``, after the imports that it needs."""
    bodies = []
    for item in found:
        # The checks alone read by what an index selects, and a function has no source as its repr.
        results = tuple(replace(result, selects=None) for result in item.signature.results)
        signature = replace(item.signature, results=results)
        bodies.append(f"{item.attribute} = {pprint.pformat(signature, width=100)}\n")
    text = "\n".join(bodies)
    names = {
        "constraints": ("Bound", "Column", "Order", "PartStarts", "Sum", "ValueRange"),
        "dtypes": ("DTypes",),
        "sizes.expressions": ("Binary", "Call", "Integer", "Name", "Scalar"),
        "model": ("Signature",),
        "parameters": (
            "NO_DEFAULT",
            "Parameter",
            "Result",
            "ScalarType",
            "SequenceType",
            "TensorListType",
            "TensorType",
        ),
        "sizes.shapes": ("Fixed", "Shape", "Unnamed", "Variadic"),
    }
    lines = [head(), "from math import inf, nan  # noqa: F401\n"]
    for module, known in names.items():
        used = [name for name in known if re.search(rf"\b{name}\b", text)]
        if used:
            place = vendor.place_of(f"signature.{module}")
            lines.append(f"from .{place} import {', '.join(used)}\n")
    return "".join([*lines, "\n", text])


def _init(found: Sequence[JaxFunction]) -> str:
    listed = ", ".join(item.operator.name for item in found)
    lines = [
        f'"""Operators for JAX: {listed}."""\n\n',
        head(),
        "from pathlib import Path\n\n",
        "from . import declarations, gradients\n",
        f"from .{vendor.place_of('targets.jax.package.function')} import Function, XlaLibrary\n\n",
        "_HERE = Path(__file__).parent\n",
    ]
    for item in found:
        sha256 = file_digest(item.path).sha256
        lines += [
            f"\n{item.attribute} = Function(\n",
            f"    declarations.{item.attribute},\n",
            "    XlaLibrary(\n",
            f'        _HERE / "{item.path.name}",\n',
            f'        "{sha256}",\n',
            f'        "{library.symbol(item.signature)}",\n',
            f'        "{kernels.calls_symbol(item.signature, HOST)}",\n',
            "    ),\n",
            f"    gradients.{item.attribute},\n",
            ")\n",
        ]
    lines.append("\nFUNCTIONS = {\n")
    lines += [f'    "{item.operator.name}": {item.attribute},\n' for item in found]
    lines.append("}\n\ngradients.operators.update(FUNCTIONS)\n")
    return "".join(lines)


def _gradients_text(found: Sequence[JaxFunction]) -> str:
    """Return the derivatives as Python source."""
    lines = [
        head(),
        "import math  # noqa: F401\n\n",
        "from . import declarations\n",
        f"from .{vendor.place_of('targets.jax.package')} import aten  # noqa: F401\n",
        f"from .{vendor.place_of('targets.jax.package.derivative')} import "
        "ByHand, ByReference, Variant  # noqa: F401\n\n",
        "operators = {}\n",
    ]
    for item in found:
        name = item.attribute
        if isinstance(item.gradient, str):
            lines.append(f"\n{name} = {item.gradient!r}\n")
            continue
        variants = []
        asked: dict[str, str] = {}
        for number, path in enumerate(item.gradient.paths):
            lines.append(f"\n\ndef _{name}_{number}({', '.join(path.inputs)}):\n")
            lines += [f"    {line}\n" for line in path.body]
            taken = ", ".join(path.inputs[: path.count])
            conditions = [
                f"    ({text!r}, lambda {taken}: {text}, {minor}),\n"
                for text, minor in path.conditions
            ]
            # Paths of several dtypes share their conditions.
            text = "".join(conditions)
            if text not in asked:
                asked[text] = f"_{name}_{number}_if"
                lines.append(f"\n\n{asked[text]} = [\n{text}]\n")
            variants += [
                f"    Variant({kinds}, {asked[text]}, _{name}_{number}),\n" for kinds in path.kinds
            ]
        lines += [
            f"\n\n{name} = {item.gradient.how}(declarations.{name}, [\n",
            *variants,
            "]",
            *([f", {item.gradient.hindered}"] if item.gradient.hindered else []),
            ")\n",
        ]
    return "".join(lines)


def _readme(name: str, found: Sequence[JaxFunction]) -> str:
    lines = [
        f"# {name}",
        "",
        f"Functions for JAX on the CPU, exported by opsmith {version()}. It needs jax and NumPy.",
        "",
        "```",
        "pip install .        # or put this folder on the path",
        f'python -c "import {name}; help({name}.{found[0].attribute})"',
        "```",
        "",
        "The functions work under `jax.jit` and `jax.vmap`; what `jax.grad` gives of each:",
        "",
        *(f"- `{name}.{item.attribute}`: {_note(item)}" for item in found),
    ]
    return "\n".join(lines) + "\n"
