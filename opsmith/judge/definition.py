"""Write a specification from a definition of FlashInfer-Bench.

A definition is a JSON file: named axes that are constant or vary, inputs and outputs with shapes
and dtypes, and a reference in Python whose function ``run`` takes the inputs in order. See the
schema of `FlashInfer Trace <https://bench.flashinfer.ai/docs/flashinfer-trace/definition>`_.
"""

from __future__ import annotations

import ast
import json
import keyword
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from opsmith.errors import LoadError
from opsmith.signature.dtypes import FLOAT8, FLOATING, annotation

#: The namespace of the operators that definitions declare.
NAMESPACE = "flashinfer"
#: The dtypes of a definition's tensors, and what a declaration calls each.
_ANNOTATIONS = {
    name: annotation(name)
    for name in (*FLOATING, *FLOAT8, "int64", "int32", "int16", "int8", "uint8", "bool")
}
#: The types of inputs without dimensions, whose shape is null.
_SCALARS = {"float": "float", "int": "int", "uint": "int", "bool": "bool", "bfloat": "float"}


def spec_of(definition: Path, folder: Path) -> Path:
    """Write the specification that a definition states.

    Args:
        definition: the JSON file.
        folder: the folder to write to; created if it is missing.

    Returns:
        The file, a Python module with the name of the definition. It declares the operator
        ``flashinfer::NAME``, whose reference is the definition's ``run``.

    Raises:
        LoadError: the file is no definition; the message says which part of it.
    """
    try:
        document = json.loads(definition.read_text())
    except (OSError, ValueError, RecursionError) as error:
        raise LoadError(f"{definition}: not a definition, since it is not JSON: {error}") from None
    reader = _DefinitionReader(definition, document)
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{reader.name}.py"
    file.write_text(reader.module())
    return file


class _DefinitionReader:
    def __init__(self, path: Path, document: Any) -> None:
        self.path = path
        if not isinstance(document, dict):
            raise self.wrong("the document", "an object", document)
        self.document = document
        self.name = self.word("name", document.get("name"))
        self.axes = self.mapping("axes", document)
        self.inputs = self.mapping("inputs", document)
        self.outputs = self.mapping("outputs", document)
        if not self.outputs:
            raise self.wrong("outputs", "at least one output", {})

    def wrong(self, part: str, expected: str, given: Any) -> LoadError:
        shown = json.dumps(given)
        if len(shown) > 80:
            unit = "entries" if isinstance(given, dict | list) else "characters"
            shown = f"a {type(given).__name__} of {len(given)} {unit}"
        return LoadError(f"{self.path}: {part}: expected {expected}, got {shown}")

    def mapping(self, part: str, document: Mapping[str, Any]) -> dict[str, Any]:
        value = document.get(part)
        if not isinstance(value, dict):
            raise self.wrong(part, "an object", value)
        return {self.word(f"a name in {part}", name): one for name, one in value.items()}

    def word(self, part: str, value: Any) -> str:
        if not isinstance(value, str) or not value.isidentifier() or keyword.iskeyword(value):
            raise self.wrong(part, "a name that is a Python identifier", value)
        return value

    def module(self) -> str:
        """Return the text of the specification."""
        parameters = ", ".join(
            f"{name}: {self.annotation(f'inputs.{name}', one)}" for name, one in self.inputs.items()
        )
        returned = [
            self.annotation(f"outputs.{name}", one, result=True)
            for name, one in self.outputs.items()
        ]
        result = returned[0] if len(returned) == 1 else f"tuple[{', '.join(returned)}]"
        used = [one for one in _ANNOTATIONS.values() if f"{one}[" in f"{parameters} {result}"]
        return "\n".join(
            [
                f'"""The specification that {self.path.name} states."""',
                "",
                f"from jaxtyping import {', '.join(used)}",
                "from torch import Tensor",
                "",
                "import opsmith",
                "",
                f"_names = {{'__name__': {self.name!r}}}",
                f"exec(compile({self.reference()!r}, 'reference', 'exec'), _names)",
                "_run = _names['run']",
                f"_outputs = {tuple(self.outputs)!r}",
                "",
                "",
                f"@opsmith.op({f'{NAMESPACE}::{self.name}'!r})",
                f"def {self.name}({parameters}) -> {result}:",
                f'    """{self.described()}"""',
                f"    returned = _run({', '.join(self.inputs)})",
                "    if isinstance(returned, dict):",
                "        returned = tuple(returned[name] for name in _outputs)",
                "    if not isinstance(returned, (tuple, list)):",
                "        returned = (returned,)",
                "    own = tuple(one.clone() for one in returned)",
                "    return own if len(_outputs) > 1 else own[0]",
                "",
            ]
        )

    def described(self) -> str:
        text = self.document.get("description") or f"Compute {self.name}."
        return " ".join(str(text).replace("\\", " ").replace('"', "'").split()) or self.name

    def annotation(self, part: str, one: Any, *, result: bool = False) -> str:
        if not isinstance(one, dict):
            raise self.wrong(part, "an object with shape and dtype", one)
        dtype, shape = one.get("dtype"), one.get("shape")
        if dtype not in _ANNOTATIONS:
            raise self.wrong(f"{part}.dtype", f"one of {', '.join(_ANNOTATIONS)}", dtype)
        if shape is None:
            if result:
                raise self.wrong(f"{part}.shape", "a list of axes", shape)
            return _SCALARS[dtype.split("_")[0].rstrip("0123456789")]
        if not isinstance(shape, list):
            raise self.wrong(f"{part}.shape", "a list of axes, or null for a number", shape)
        dims = " ".join(self.axis(f"{part}.shape", axis) for axis in shape)
        return f"{_ANNOTATIONS[dtype]}[Tensor, {dims!r}]"

    def axis(self, part: str, name: Any) -> str:
        if not isinstance(name, str) or name not in self.axes:
            raise self.wrong(part, f"axes among {', '.join(self.axes) or 'none'}", name)
        axis = self.axes[name]
        kind = axis.get("type") if isinstance(axis, dict) else None
        if kind == "var":
            return name
        value = axis.get("value") if kind == "const" else None
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return str(value)
        expression = axis.get("expression") if kind == "expr" else None
        if isinstance(expression, str) and expression:
            return "".join(expression.split())
        expected = '{"type": "var"}, or {"type": "const", "value": N}'
        raise self.wrong(f"axes.{name}", expected, axis)

    def reference(self) -> str:
        """Return the source of the reference, which has a function ``run`` of the inputs."""
        source = self.document.get("reference")
        if not isinstance(source, str):
            raise self.wrong("reference", "Python source", source)
        try:
            tree = ast.parse(source)
        except (SyntaxError, ValueError) as error:
            raise LoadError(f"{self.path}: reference: not Python: {error}") from None
        for node in tree.body:
            if isinstance(node, ast.FunctionDef) and node.name == "run":
                names = [one.arg for one in (*node.args.posonlyargs, *node.args.args)]
                if names != list(self.inputs):
                    raise self.wrong("reference", f"run({', '.join(self.inputs)})", names)
                return source
        raise self.wrong("reference", "a function run", source)
