"""Mistakes in the declaration of a custom class are found while declaring."""

from __future__ import annotations

import textwrap
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import pytest
import torch
from jaxtyping import Float, Int64
from torch import Tensor

import opsmith
from opsmith import DeclarationError, Index
from opsmith.operators.classes.read_class import read_class
from opsmith.signature.class_model import ClassModel

NAMES = {
    "opsmith": opsmith,
    "torch": torch,
    "Tensor": Tensor,
    "Float": Float,
    "Int64": Int64,
    "Sequence": Sequence,
    "ClassVar": ClassVar,
    "Index": Index,
    "dataclass": dataclass,
}


def read(body: str, head: str = "class Thing:") -> ClassModel:
    names: dict[str, Any] = {"__name__": __name__, **NAMES}
    exec(head + "\n" + textwrap.indent(textwrap.dedent(body), "    "), names)
    return read_class(names["Thing"], "ns::Thing").model


GET = """
def get(self) -> int:
    return self.size
"""
WHOLE = "size: int" + GET


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("size: int", "ns::Thing: has no method; a class without one is a dictionary"),
        (
            "size: dict" + GET,
            "ns::Thing: field 'size: dict': operators do not take this type; there are ",
        ),
        (
            "size: int = 'a'" + GET,
            "ns::Thing: field 'size: int': the default 'a' is not int",
        ),
        (
            "row: Tensor = torch.ones(1)\nsize: int = 1" + GET,
            "ns::Thing: field 'row: Tensor': the default tensor([1.]) is not None; a tensor's "
            "default can only be None",
        ),
        (
            "size: int = 1\nrow: Tensor" + GET,
            "ns::Thing: field 'row' has no default and stands after 'size', which has",
        ),
        ("size: Missing" + GET, "ns::Thing: field 'size: Missing' does not evaluate: name"),
        ("size: ClassVar[int] = 3" + GET, "ns::Thing: field 'size' is a ClassVar; put it outside"),
        (
            WHOLE + "\nlimit = 3",
            "ns::Thing: 'limit = 3' has no annotation; a field has one (limit: int = 3), a "
            "constant stands outside the class",
        ),
        ("size: int\nget: int" + GET, "ns::Thing: 'get' is both a field and a method; rename one"),
        (
            WHOLE + "\ndef __init__(self, n: int): self.size = n",
            "ns::Thing: defines __init__; the constructor takes the fields, in their order. "
            "Compute them in a classmethod that calls cls(...)",
        ),
        (
            WHOLE + "\ndef __len__(self): return 3",
            "ns::Thing: defines __len__, which a TorchBind class cannot have; name a method",
        ),
        (
            WHOLE + "\n@property\ndef twice(self): return 2 * self.size",
            "ns::Thing: 'twice' is a property; make it a method (fields can be read as attributes)",
        ),
        (
            "size: int\ndef run() -> int: return 1",
            "ns::Thing.run: takes no self; a method does",
        ),
        (
            "size: int\ndef run(self, size: int) -> int: return size",
            "ns::Thing.run: parameter 'size' has the name of a field; rename it",
        ),
        (
            "size: int\ndef run(self, x) -> Tensor: return x",
            "ns::Thing.run: parameter 'x' has no annotation; write what it is",
        ),
        (
            "size: int\ndef run(self, x: Tensor): return x",
            "ns::Thing.run: the return annotation is missing; write the result's shape, int, or",
        ),
        (
            "size: int\ndef run(self, x: Tensor) -> None: pass",
            "ns::Thing.run: returns nothing and mutates nothing; name what it writes in "
            "mutates=(...)",
        ),
        (
            "mode: str\ndef run(self) -> str: return self.mode + 'x'",
            "ns::Thing.run: the return annotation str: only a method that does nothing but return "
            "a field may return a str; others return tensors, int, float or bool",
        ),
        (
            "size: int\ndef run(self) -> Sequence[int]: return [self.size]",
            "ns::Thing.run: the return annotation Sequence[int]: a result is a tensor",
        ),
        (
            "size: int\ndef get(self) -> float: return self.size",
            "ns::Thing.get: returns the field 'size: int', but is annotated -> float",
        ),
        (
            "size: int\ndef get(self): return self.size",
            "ns::Thing.get: returns the field 'size: int'; annotate it -> the same",
        ),
        (
            'size: int\ndef run(self, x: Float[Tensor, "N"]) -> Float[Tensor, "M"]: return x',
            "ns::Thing.run: the result Float[Tensor, \"M\"]: no argument binds 'M'.",
        ),
        (
            "size: int\n@opsmith.method(mutates=('count',))\ndef run(self) -> int: return 1",
            "ns::Thing.run: mutates names 'count', which is not a field; there are 'size'",
        ),
        (
            "sizes: list[int]\n@opsmith.method(mutates=('sizes',))\ndef run(self) -> int: return 1",
            "ns::Thing.run: mutates names 'sizes: list[int]'; what a method can change is an int, "
            "float, bool or tensor. Keep changing lists in a tensor",
        ),
        (
            "mode: str\n@opsmith.method(mutates=('mode',))\ndef run(self) -> int: return 1",
            "ns::Thing.run: mutates names 'mode: str'; what a method can change is an int",
        ),
        (
            "size: int\n@opsmith.method(autograd='yes')\ndef run(self) -> int: return 1",
            "ns::Thing.run: autograd='yes'; there is \"reference\", or register_autograd",
        ),
        (
            "row: Tensor\n@opsmith.method(mutates=('row',), autograd='reference')\n"
            "def run(self) -> None: self.row += 1",
            "ns::Thing.run: autograd=\"reference\", but it writes into 'row'; a mutating operator "
            "has no gradient",
        ),
        (
            "size: int\n@opsmith.method(mutates=('size',))\n"
            "def grow(self) -> None: self.size += 1\n"
            'def run(self, x: Float[Tensor, "N"]) -> Float[Tensor, "N {size}"]: return x',
            "ns::Thing: method 'run': the result Float[Tensor, \"N {size}\"]: a size cannot depend "
            "on 'size', which a method changes: a traced program would keep the size of today",
        ),
        (
            "out: int\nresult: int\ndef run(self, x: Tensor) -> Tensor: return x",
            "ns::Thing: field 'out' has the name that the result has in a kernel; rename the",
        ),
        (
            "size: int\n@opsmith.method(mutates=('size',))\n"
            "def run(self, new_size: int) -> None: self.size = new_size",
            "ns::Thing.run: parameter 'new_size' has the name that the result has in a kernel; "
            "rename the parameter",
        ),
    ],
)
def test_a_mistake_is_said(body, message):
    with pytest.raises(DeclarationError) as caught:
        read(body)
    assert str(caught.value).startswith(message), str(caught.value)


def test_what_is_no_plain_class_is_said():
    with pytest.raises(DeclarationError, match=r"ns::Thing: take @dataclass off"):
        read(WHOLE, "@dataclass\nclass Thing:")
    with pytest.raises(DeclarationError, match=r"ns::Thing: inherits from Module; a custom class"):
        read(WHOLE, "class Thing(torch.nn.Module):")
    with pytest.raises(DeclarationError, match="decorates a class, not function"):
        opsmith.custom_class("ns::Thing")(lambda: None)  # type: ignore[arg-type]
    with pytest.raises(DeclarationError, match="is named 'namespace::name'"):
        opsmith.custom_class("Thing")(type("Thing", (), {}))
    with pytest.raises(DeclarationError, match=r'write @opsmith\.custom_class\("my_ops::Thing'):
        opsmith.custom_class(type("Thing", (), {}))  # type: ignore[call-overload]
    with pytest.raises(DeclarationError, match=r'is a string; write mutates=\("count",\)'):
        opsmith.method(mutates="count")


def test_the_operator_of_a_method_takes_the_fields_first():
    model = read(
        """
        size: int
        row: Float[Tensor, "{size}"]
        on: bool = True

        @opsmith.method(mutates=("size", "row", "on"))
        def run(self, x: Float[Tensor, "N {size_}"], size_: int = 2, *, k: int = 1) -> Tensor:
            return x
        """.replace('"{size}"', '"C"')
    )
    (method,) = model.methods
    assert method.operator is not None
    assert method.operator.schema() == (
        "Thing_run(SymInt size, Tensor(a!) row, bool on, Tensor x, SymInt size_=2, *, SymInt k=1) "
        "-> (Tensor, Tensor, Tensor)"
    )
    assert [result.name for result in method.operator.results] == ["out", "new_size", "new_on"]
    assert method.updates == ("size", "on")
    assert model.mutable == ("size", "row", "on")
    assert model.description().splitlines() == [
        "opsmith-class\t1",
        "class\tns\tThing",
        "constructor\t__init__(int size, Tensor row, bool on=True) -> ()",
        "method\trun(Tensor x, int size_=2, *, int k=1) -> ()\tns::Thing_run\ttensor\t0,2",
    ]


def test_a_method_that_only_returns_a_field_is_a_getter():
    model = read(
        '''
        size: int
        names: list[str]

        def get_size(self) -> int:
            """How many."""
            return self.size

        def get_names(self) -> list[str]:
            return self.names

        def twice(self) -> int:
            return self.size * 2

        def helper(self) -> int:
            return self._size()

        def _size(self):
            return self.size
        '''
    )
    assert {method.name: method.getter for method in model.methods} == {
        "get_size": "size",
        "get_names": "names",
        "twice": None,
        "helper": None,
    }
