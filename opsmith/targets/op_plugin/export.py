"""Write OpPlugin's YAML, from which `torchnpugen` generates C++, and converters for TorchAir."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NoReturn

import torch

from opsmith.errors import ArtifactError, ExportError
from opsmith.kernels import adapters
from opsmith.operators import Operator
from opsmith.signature import Parameter, Result, Signature, TensorListType
from opsmith.signature.dtypes import ALL_DTYPES
from opsmith.signature.model import schema_of
from opsmith.signature.sizes.expressions import Expression, Name
from opsmith.signature.sizes.shapes import Fixed, Variadic
from opsmith.targets.exporting.artifact import Artifact, OperatorUse
from opsmith.targets.exporting.packages.writer import attributes_of
from opsmith.targets.exporting.protocol import Outcome
from opsmith.targets.hosted.signature_text import in_order, with_default

_SCALAR_TYPES = (
    "Bool Byte Char Short Int Long Half BFloat16 Float Double ComplexFloat ComplexDouble "
    "Float8_e4m3fn Float8_e5m2 UInt16 UInt32 UInt64"
)
# The remainder has the sign of the divisor, as in Python.
_ARITHMETIC = {
    "add": "std::plus<int64_t>()",
    "sub": "std::minus<int64_t>()",
    "mul": "std::multiplies<int64_t>()",
    "mod": "[](int64_t a, int64_t b) { return (a % b + b) % b; }",
    "div": "[](int64_t a, int64_t b) { return (a - (a % b + b) % b) / b; }",
}


def export(operators: Sequence[Operator], folder: Path, options: Mapping[str, Any]) -> Outcome:
    """Write the YAML of the operators and of their declared backwards, and the converters."""
    given = options["op_type"] or {}
    types = {operators[0].name: given} if isinstance(given, str) else given
    backwards = [getattr(operator, "declared_backward", None) for operator in operators]
    every = dict.fromkeys([*operators, *(one.backward for one in backwards if one is not None)])
    signatures = [operator.signature for operator in every]
    names = [signature.qualname for signature in signatures]
    if types.keys() - names or (isinstance(given, str) and operators[1:]):
        raise ExportError(f"op_type={given!r}: give types by name, of {', '.join(names)}")
    functions = []
    for signature, name in zip(signatures, attributes_of(signatures), strict=True):
        # Beside ATen's functions, torchgen takes no other of such a name.
        full = f"{signature.namespace}_{name}" if hasattr(torch.ops.aten, name) else name
        camel = "".join(word.capitalize() for word in signature.name.split("_"))
        functions.append(_Function(signature, full, types.get(signature.qualname, camel)))
    for file in ("npu_custom.yaml", "converters.py"):
        template = Path(__file__).with_name(f"{file}.j2")
        text = adapters.render(template, signatures[0], functions=functions)
        (folder / file).write_text(text, encoding="utf-8")
    uses = [OperatorUse(f.signature.qualname, f"aclnn{f.op_type}") for f in functions]
    return Outcome(uses, unverified="the files are sources, which CANN compiles for an NPU")


def load(artifact: Artifact) -> NoReturn:
    """Raise an `ArtifactError`: what was written is sources."""
    raise ArtifactError(f"{artifact.folder} has sources, which CANN compiles for an NPU")


class _Function:
    """An operator as OpPlugin and TorchAir call it; refuses what these cannot say."""

    def __init__(self, signature: Signature, name: str, op_type: str) -> None:
        self.signature, self.name, self.op_type = signature, name, op_type
        self.parameters = ", ".join(in_order(signature, with_default))
        self.schema, self.variables = self._schema(), dict[str, str]()
        ordered = sorted(signature.parameters, key=lambda p: p not in signature.tensors)
        self.passed = [*map(self._argument, ordered), *(one.name for one in signature.results)]
        # The tensors that every call has, by their C++.
        self._present = {
            f"{p.name}[0]" if p.is_tensor_list else p.name: p
            for p in signature.tensors
            if (p.name in signature.nonempty if p.is_tensor_list else not p.optional)
        }
        first = next((p for p in signature.tensors if not p.optional), None)
        if signature.results and first not in self._present.values():
            self.refuse("OpPlugin makes results like the first tensor, and a call may have none.")
        self.results = {r.name: (self._sizes(r), self._dtype(r)) for r in signature.results}

    def refuse(self, why: str) -> NoReturn:
        raise ExportError(f"{self.signature.qualname}: {why}")

    def _schema(self) -> str:
        from torchgen.model import FunctionSchema

        text = schema_of(self.name, self.signature.parameters, self.signature.results)
        # To torchgen ", " is the end of an argument.
        text = re.sub(r"=\[.*?\]", lambda m: m[0].replace(" ", ""), text)
        try:
            return str(FunctionSchema.parse(text))
        except (AssertionError, RuntimeError, ValueError) as error:
            self.refuse(f"torchgen, by which OpPlugin reads schemas, refuses {text!r}: {error}")

    def _argument(self, parameter: Parameter) -> str:
        """Return the C++ variable by which an argument is passed."""
        name, kind = parameter.name, getattr(parameter.type, "kind", "")
        if adapters.identifier(name) != name:
            self.refuse(f"argument {name!r} is a word of C++, and OpPlugin keeps it.")
        if parameter.optional and (not parameter.is_tensor or parameter.mutated):
            self.refuse(f"argument {name!r} may be None; in CANN only a tensor that is read may.")
        if kind != "int" and parameter.is_sequence:
            self.refuse(f"argument {name!r} is a list of {kind}; OpPlugin passes ints alone.")
        cpp = {"int": f"{name}.expect_int()", "str": f"const_cast<char*>({name}.data())"}
        if parameter.is_scalar and kind in cpp:
            self.variables[f"opsmith_{name}"] = cpp[kind]
            return f"opsmith_{name}"
        return name

    def _dtype(self, result: Result) -> str:
        generic, type_ = self.signature.generic, result.tensor_type
        choices = generic.names if generic is not None else (None,)
        wanted = [self.signature.dtype_in(type_, one) for one in choices]
        for name, other in self._present.items():
            theirs = other.tensor_type
            if theirs and [self.signature.dtype_in(theirs, one) for one in choices] == wanted:
                return name
        if type_.dtypes.generic:
            self.refuse(f"no required tensor has the dtype of its result {result.name!r}.")
        return f"at::k{_SCALAR_TYPES.split()[ALL_DTYPES.index(type_.dtypes.names[0])]}"

    def _sizes(self, result: Result) -> str:
        if isinstance(result.type, TensorListType) or result.shape is None:
            self.refuse(f"its result {result.name!r} has no declared sizes.")
        for name, other in self._present.items():
            if other.shape is not None and other.dims == result.dims:
                return name
        dims = self.signature.result_dims(result)
        sizes = [self._cpp(dim.expression, result) for dim in dims if isinstance(dim, Fixed)]
        text = f"std::vector<int64_t>{{{', '.join(sizes)}}}"
        for place, dim in enumerate(dims):
            if isinstance(dim, Variadic):
                insert = f"all.insert(all.begin() + {place}, more.begin(), more.end()); return all;"
                more = self._bound(str(dim.name), result)
                text = f"[](auto all, auto more) {{ {insert} }}({text}, {more})"
        return text

    def _cpp(self, expression: Expression, result: Result) -> str:
        """Return an expression of a result's sizes as C++."""
        text = adapters.expression(
            expression,
            lambda name: self._bound(name, result),
            lambda name, at: f"{name}{'' if at is None else [at]}.expect_int()",
        )
        for name, cpp in _ARITHMETIC.items():
            text = text.replace(f"detail::{name}(", f"{cpp}(")
        return text

    def _bound(self, name: str, result: Result) -> str:
        """Return a size that an argument has as C++, or those that a ``*name`` stands for."""
        solved = {(e.parameter, e.position): e for e in self.signature.equations if e.name == name}
        for text, tensor in self._present.items():
            for position, (axis, dim) in enumerate(tensor.shape.axes() if tensor.shape else ()):
                if isinstance(dim, Variadic) and dim.name == name:
                    return f"{text}.sizes().slice({axis}, {text}.dim() - {len(tensor.dims) - 1})"
                if dim == Fixed(Name(name)):
                    return f"{text}.size({axis})"
                if equation := solved.get((tensor.name, position)):
                    parts = (self._cpp(one, result) for one in (equation.rest, equation.factor))
                    return "(({}.size({}) - {}) / {})".format(text, axis, *parts)
        self.refuse(f"no required tensor has the size {name!r} of its result {result.name!r}.")
