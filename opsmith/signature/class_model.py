"""The declaration of a custom class, as plain data.

A method is an operator whose first parameters are the class's fields. Other effects of a method,
such as a new value of a field, become further results of that operator.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from opsmith.signature.model import Signature, _argument
from opsmith.signature.parameters import Parameter, ScalarType

Returned = Literal["tensor", "tensors", "int", "float", "bool"]
"""The kinds of a method's results; ``tensors`` is a list of tensors."""

RESULT_DTYPES = {"int": "int64", "float": "float64", "bool": "bool"}
"""The dtype of the 0-dimensional tensor in which an operator returns a method's scalar."""

DESCRIPTION_VERSION = 1


@dataclass(frozen=True)
class MethodModel:
    """A method of a custom class.

    Attributes:
        name: its name in the class.
        parameters: its parameters, without ``self``.
        returns: the kinds of its results; several are returned as a tuple, none as `None`.
        mutates: the fields that it changes.
        getter: the field that it returns, if it does nothing else; such a method has no operator.
        operator: the operator that does the work: its parameters are the fields, then `parameters`;
            its results are `returns`, then ``new_<field>`` for each of `updates`.
    """

    name: str
    parameters: tuple[Parameter, ...] = ()
    returns: tuple[Returned, ...] = ()
    mutates: tuple[str, ...] = ()
    getter: str | None = None
    operator: Signature | None = None

    @property
    def updates(self) -> tuple[str, ...]:
        """The scalar fields that it changes, in the order of the operator's last results.

        A tensor that a method changes is written in place instead.
        """
        if self.operator is None:
            return ()
        return tuple(name for name in self.mutates if self.operator.parameter(name).is_scalar)

    @property
    def returns_scalars(self) -> bool:
        """Return whether one of its results is a number."""
        return any(kind in RESULT_DTYPES for kind in self.returns)

    @property
    def schema(self) -> str:
        """The method's schema without ``self`` and without its results."""
        return f"{self.name}({_parameters(self.parameters)}) -> ()"


@dataclass(frozen=True)
class ClassModel:
    """A custom class.

    Attributes:
        namespace: the ``ns`` of ``ns::Name``.
        name: the class's own name.
        constructor: the signature of the constructor, whose parameters are the fields. (It does not
            name an existing operator.)
        methods: the methods in the order of their declarations.
        doc: the class's docstring.
    """

    namespace: str
    name: str
    constructor: Signature
    methods: tuple[MethodModel, ...]
    doc: str = ""

    @property
    def qualname(self) -> str:
        """``namespace::Name``."""
        return f"{self.namespace}::{self.name}"

    @property
    def torch_name(self) -> str:
        """The name of the class in TorchScript's types."""
        return f"__torch__.torch.classes.{self.namespace}.{self.name}"

    @property
    def fields(self) -> tuple[Parameter, ...]:
        """The fields, in order."""
        return self.constructor.parameters

    @cached_property
    def by_name(self) -> dict[str, MethodModel]:
        """The methods by name."""
        return {method.name: method for method in self.methods}

    @cached_property
    def mutable(self) -> tuple[str, ...]:
        """The fields that some method changes, in order."""
        changed = {name for method in self.methods for name in method.mutates}
        return tuple(field.name for field in self.fields if field.name in changed)

    def description(self) -> str:
        """Return the text from which C++ defines the class; see ``classes/runtime.cpp``.

        The text is lines of columns separated by tabs, which C++ can read without a parser.
        """
        position = {field.name: index for index, field in enumerate(self.fields)}
        lines = [
            ["opsmith-class", str(DESCRIPTION_VERSION)],
            ["class", self.namespace, self.name],
            ["constructor", f"__init__({_parameters(self.fields)}) -> ()"],
        ]
        for method in self.methods:
            if method.getter is not None:
                lines.append(["getter", method.name, str(position[method.getter])])
                continue
            assert method.operator is not None
            returns = ",".join(method.returns)
            updates = ",".join(str(position[name]) for name in method.updates)
            lines.append(["method", method.schema, method.operator.qualname, returns, updates])
        return "".join("\t".join(columns) + "\n" for columns in lines)


def _parameters(parameters: tuple[Parameter, ...]) -> str:
    texts: list[str] = []
    for parameter in parameters:
        if parameter.keyword_only and "*" not in texts:
            texts.append("*")
        # A class's arguments are never symbolic. Escape tabs and line breaks, which separate
        # columns and lines.
        text = _argument(parameter, None).replace("\n", "\\n").replace("\t", "\\t")
        texts.append("int" + text.removeprefix("SymInt") if text.startswith("SymInt") else text)
    return ", ".join(texts)


def is_number(parameter: Parameter) -> bool:
    """Return whether a field is one int, float or bool, which an operator can give a new value."""
    return (
        isinstance(parameter.type, ScalarType)
        and parameter.type.kind in RESULT_DTYPES
        and not parameter.optional
    )
