"""Write a specification from a definition of FlashInfer-Bench, or a dump of FlashInfer's fi_trace.

A definition is a JSON file: named axes that are constant or vary, inputs and outputs with shapes
and dtypes, and a reference in Python: its function ``run``, or its last function, which takes the
inputs. See the schema of `FlashInfer Trace
<https://bench.flashinfer.ai/docs/flashinfer-trace/definition>`_. What the values of integers are
follows from ``constraints`` as ``total == indptr[-1].item()``, and from FlashInfer's names.
"""

from __future__ import annotations

import ast
import json
import keyword
import re
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
#: Names of integers by which FlashInfer indexes, and the axis that each counts.
_INDEXED = {
    r"token_ids|samples": "vocab_size",
    r"topk_ids|expert_ids": "num_experts",
    r"pos_ids|positions": "max_seq_len",
    r"batch_indices": "batch_size",
    r"indices|block_tables|page_table|slot_mapping": "num_pages",
}
_OFFSETS = re.compile(r"indptr|cu_seqlens")
#: The axis that a constraint equals to another's arithmetic, and one that the last offset states.
_EQUAL = re.compile(r"(\w+) == ([\w+*/ ()-]+)")
_MULTIPLE = re.compile(r"(\d+) \* (\w+)")
_NAME = re.compile(r"[A-Za-z_]\w*")
_LAST = re.compile(r"(\w+) == (\w+)\[-1\]\.item\(\)")


def spec_of(definition: Path, folder: Path) -> Path:
    """Write the specification that a definition states.

    Args:
        definition: the JSON file.
        folder: the folder to write to; created if it is missing.

    Returns:
        The file, a Python module with the name of the definition. It declares the operator
        ``flashinfer::NAME``, whose reference is the definition's ``run``.
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
        self.outputs = self.mapping("outputs", document)
        if not self.outputs:
            raise self.wrong("outputs", "at least one output", {})
        self.function = self.reference()
        self.inputs = self.taken(self.mapping("inputs", document))
        self.outputs = self.returned(self.outputs)
        self.derived: dict[str, str] = {}
        self.lasts: dict[str, str] = {}
        self.known: set[str] = set()  # axes whose size an input has, or that are constant
        self.constraints(document.get("constraints") or [])

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
            f"{name}: {self.restricted(name, self.annotation(f'inputs.{name}', one))}"
            for name, one in self.inputs.items()
        )
        returned = [
            self.annotation(f"outputs.{name}", one, result=True)
            for name, one in self.outputs.items()
        ]
        if not self.fits:
            run = f"{self.function.name}({', '.join(self.inputs)})"
            raise self.wrong("reference", run, [one.arg for one in self.function.args.args])
        result = returned[0] if len(returned) == 1 else f"tuple[{', '.join(returned)}]"
        used = [one for one in _ANNOTATIONS.values() if f"{one}[" in f"{parameters} {result}"]
        return "\n".join(
            [
                f'"""The specification that {self.path.name} states."""',
                "",
                f"from jaxtyping import {', '.join(used)}",
                "from torch import Tensor",
                "from typing import Annotated",
                "",
                "import opsmith",
                "",
                f"_names = {{'__name__': {self.name!r}}}",
                f"exec(compile({self.document['reference']!r}, 'reference', 'exec'), _names)",
                f"_run = _names[{self.function.name!r}]",
                f"_outputs = {tuple(self.outputs)!r}",
                "",
                "",
                f"@opsmith.op({f'{NAMESPACE}::{self.name}'!r})",
                f"def {self.name}({parameters}) -> {result}:",
                f'    """{self.described()}"""',
                f"    returned = _run({', '.join(f'{name}={name}' for name in self.inputs)})",
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
        if dtype == "unknown" and re.search(r"indptr|indices", part):
            dtype = "int32"  # fi_trace did not see them, since FlashInfer's plan() takes them
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
            return self.derived.get(name, name)
        value = axis.get("value") if kind == "const" else None
        if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
            return str(value)
        expression = axis.get("expression") if kind == "expr" else None
        if isinstance(expression, str) and expression:
            return "".join(expression.split())
        expected = '{"type": "var"}, or {"type": "const", "value": N}'
        raise self.wrong(f"axes.{name}", expected, axis)

    def reference(self) -> ast.FunctionDef:
        """Return the reference: the function ``run``, or where there is none the last one."""
        source = self.document.get("reference")
        if not isinstance(source, str):
            raise self.wrong("reference", "Python source", source)
        try:
            tree = ast.parse(source)
        except (SyntaxError, ValueError) as error:
            raise LoadError(f"{self.path}: reference: not Python: {error}") from None
        functions = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
        if not functions:
            raise self.wrong("reference", "a function run", source)
        return next((one for one in functions if one.name == "run"), functions[-1])

    def taken(self, inputs: dict[str, Any]) -> dict[str, Any]:
        """Return the inputs that the operator has: what is optional has the reference's default."""
        given = self.function.args
        names = [one.arg for one in (*given.args, *given.kwonlyargs)]
        defaults = [*given.defaults, *given.kw_defaults]
        required = [n for n, d in zip(names[::-1], defaults[::-1], strict=False) if d is None]
        required += names[: len(names) - len(defaults)]
        left_out = {name for name in _optional(inputs) if name not in required}
        if given.kwarg is not None:
            left_out |= inputs.keys() - set(names)
        kept = {name: one for name, one in inputs.items() if name not in left_out}
        self.fits = set(required) <= kept.keys() <= set(names)
        return kept

    def returned(self, outputs: dict[str, Any]) -> dict[str, Any]:
        """Return the outputs, without optional ones that the reference's last line leaves out."""
        last = self.function.body[-1]
        value = last.value if isinstance(last, ast.Return) else None
        count = len(value.elts) if isinstance(value, ast.Tuple) else 1
        left_out = _optional(outputs)[::-1][: max(0, len(outputs) - count)]
        return {name: one for name, one in outputs.items() if name not in left_out}

    def constraints(self, given: Any) -> None:
        """Note what constraints say of an axis, or of the last offset; others say nothing."""
        shapes = [one.get("shape") for one in self.inputs.values() if isinstance(one, dict)]
        bound = {str(axis) for shape in shapes if isinstance(shape, list) for axis in shape}
        self.known |= {axis for axis in self.axes if axis in bound or not self.varies(axis)}
        used: set[str] = set()
        for text in map(str, given):
            last, equal = _LAST.fullmatch(text), _EQUAL.fullmatch(text)
            if last is not None and last[1] in self.known:
                self.lasts[last[2]] = self.axis("constraints", last[1])
            if equal is None or equal[1] not in self.axes:
                continue
            whole, names, multiple = (
                equal[1],
                _NAME.findall(equal[2]),
                _MULTIPLE.fullmatch(equal[2]),
            )
            if self.varies(whole) and whole not in used and self.known.issuperset(names):
                arithmetic = _NAME.sub(lambda one: self.axis("constraints", one[0]), equal[2])
                self.derived[whole] = "".join(arithmetic.split())
                self.known.discard(whole)
                used.update(names)
            elif multiple is not None and multiple[2] in self.axes.keys() - self.known:
                self.derived[multiple[2]] = f"{self.axis('constraints', whole)}//{multiple[1]}"

    def varies(self, axis: str) -> bool:
        one = self.axes[axis]
        return isinstance(one, dict) and one.get("type") == "var"

    def restricted(self, name: str, annotation: str) -> str:
        """Return an annotation with what the values of an input of integers are."""
        rule, counted = "", [axis for names, axis in _INDEXED.items() if re.search(names, name)]
        if "Int" not in annotation:
            return annotation
        if name in self.lasts or _OFFSETS.search(name):
            last = f", last={self.lasts[name]!r}" if name in self.lasts else ""
            rule = f"Sorted(first=0{last})"
        elif name.endswith("last_page_len") and "page_size" in self.known:
            rule = f"Between(1, {self.axis('axes', 'page_size')!r})"
        elif counted and counted[0] in self.known:
            rule = f"Index({self.axis('axes', counted[0])!r})"
        return f"Annotated[{annotation}, opsmith.{rule}]" if rule else annotation


def _optional(parts: Mapping[str, Any]) -> list[str]:
    return [name for name, one in parts.items() if isinstance(one, dict) and one.get("optional")]
