"""Write the Python package: declarations, libraries, gradients, and the functions around them."""

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
from opsmith.operators.core.operator import RegisteredOperator
from opsmith.operators.dispatch.declared_backward import DeclaredBackward
from opsmith.signature import Signature
from opsmith.system.version import version
from opsmith.targets.exporting.artifact import OperatorUse, file_digest
from opsmith.targets.exporting.operator_export import copy_needed, kernel_of
from opsmith.targets.exporting.packages.writer import attributes_of, head, package_name, project
from opsmith.targets.exporting.protocol import Outcome
from opsmith.targets.exporting.readme import README
from opsmith.targets.jax import library, vendor
from opsmith.targets.jax.runner import JaxFunctions

load = JaxFunctions


@dataclass(frozen=True)
class JaxFunction:
    """An operator of the package.

    Attributes:
        gradient: its backward, or the reason why it has none in JAX.
    """

    operator: Operator
    attribute: str
    path: Path
    gradient: DeclaredBackward | str

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
    copy_needed(sources, package)
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


def _gradients(operators: Sequence[Operator]) -> dict[Operator, DeclaredBackward | str]:
    """Return the backward of each operator, and of the operators that are backwards."""
    found: dict[Operator, DeclaredBackward | str] = {}
    waiting = list(operators)
    for operator in waiting:
        if operator not in found:
            found[operator] = gradient = gradient_of(operator)
            waiting += [] if isinstance(gradient, str) else [gradient.backward]
    return found


def gradient_of(operator: Operator) -> DeclaredBackward | str:
    """Return the operator's backward, or a sentence that explains why it has no gradient in JAX."""
    signature, rule = operator.signature, operator.rule
    if signature.mutated:
        return "writes into an argument, and such an operator has no gradient in JAX."
    declared: DeclaredBackward | None = None
    if isinstance(operator, RegisteredOperator):
        declared = operator.declared_backward
    if declared is None:
        has = "its backward" if rule.backward is not None else "its reference"
        why = f", since {has} is PyTorch's" if rule.backward is not None or rule.reference else ""
        return (
            f"has no gradient in JAX{why}. Declare an operator with a C++ kernel that computes it, "
            f"name it with {signature.name}.register_backward, and export again."
        )
    backward = declared.backward
    problem = library.obstacle(backward, backward.kernels.get(HOST))
    if problem is not None:
        return f"has no gradient in JAX: of its backward {backward.name}, {problem}"
    return declared


def _note(item: JaxFunction) -> str:
    if isinstance(item.gradient, str):
        return item.gradient.rstrip(".")
    return f"gradient by {item.gradient.backward.name}"


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
    """Return the gradients as Python source."""
    place = vendor.place_of("targets.jax.package.derivative")
    lines = [head(), f"from .{place} import BackwardCall  # noqa: F401\n\n", "operators = {}\n"]
    for item in found:
        text = repr(item.gradient)
        if not isinstance(item.gradient, str):
            names = [parameter.name for parameter in item.signature.parameters]
            given = {
                one.name: (
                    one.kind,
                    names[one.position] if one.kind == "argument" else one.position,
                )
                for one in item.gradient.given
            }
            places = zip(names, item.gradient.gradients, strict=True)
            gradients = {name: place for name, place in places if place is not None}
            backward = item.gradient.backward.name
            text = f"BackwardCall(operators, {backward!r}, {given!r}, {gradients!r})"
        lines.append(f"\n{item.attribute} = {text}\n")
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
