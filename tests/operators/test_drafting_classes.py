"""The declaration of a class that C++ registered, found by calling its methods.

The classes are those of the library that comes with PyTorch for its own tests of TorchBind.
"""

import re
from pathlib import Path

import pytest
import torch
from jaxtyping import Float
from torch import Tensor

import opsmith
from opsmith.errors import DeclarationError
from opsmith.operators.classes import find
from opsmith.operators.drafting import draft_class, examples, is_class
from opsmith.operators.importing import import_operators

LIBRARY = Path(torch.__file__).parent / "lib" / "libtorchbind_test.so"


@pytest.fixture(scope="module", autouse=True)
def loaded():
    torch.classes.load_library(str(LIBRARY))


def draft(name, example=None):
    return draft_class(f"_TorchScriptTesting::{name}", example)


def members(text):
    """The lines of the declared class, without its opening."""
    (body,) = re.findall(r"^class \w+:\n(.*?)\n\n\n", text, re.MULTILINE | re.DOTALL)
    return [line.strip() for line in body.splitlines() if line]


def test_what_the_constructor_takes_is_held_by_the_names_that_the_object_tells():
    assert members(draft("_Foo"))[:5] == [
        "x: int",
        "y: int",
        "@classmethod",
        "def of(cls, original: torch.ScriptObject):",
        "state = dict(original.__obj_flatten__())",
    ]


def test_a_method_that_changes_fields_gives_them_back():
    text = draft("_Foo")
    assert (
        '    @opsmith.method(mutates=("x", "y"))\n'
        "    def increment(self, arg1: int) -> None:\n"
        "        original = self._original()\n"
        "        original.increment(arg1)\n"
        "        state = dict(original.__obj_flatten__())\n"
        '        self.x = state["x"]\n'
        '        self.y = state["y"]\n'
    ) in text


def test_a_method_that_takes_another_object_is_left_out_and_named():
    assert (
        "Left out: combine takes _TorchScriptTesting._Foo, which no declaration can carry."
        in draft("_Foo")
    )


def test_what_is_pickled_is_held_where_the_constructor_takes_less():
    text = draft("_TensorQueue")
    assert members(text)[:2] == ['init_tensor: Float[Tensor, "N C"]', "queue: list[Tensor]"]
    assert '        state = (("init_tensor", self.init_tensor), ("queue", self.queue))' in text
    assert "        return cls(state[0][1], state[1][1])" in text


def test_a_method_that_changes_a_list_is_left_out_and_named():
    text = " ".join(draft("_TensorQueue").split())
    assert "push changes 'queue', and what a method can change is a number or a tensor's" in text
    assert "clone_queue returned an empty list, which says nothing of its tensors" in text


def test_a_field_that_is_returned_is_copied():
    text = draft("_TensorQueue")
    assert "        return self._original().top().clone()\n" in text


def test_an_empty_list_leaves_the_cases_alone():
    assert "@TensorQueue.top.register_cases(only=True)" in draft("_TensorQueue")


def test_a_change_that_nobody_can_read_is_left_out_and_named():
    text = " ".join(draft("_DefaultArgs", "4").split())
    assert "increment answers otherwise when it is called again, and nothing that can be" in text
    assert "Nothing tells the state of an original object (def_readonly, def_pickle)" in text
    assert "def of(" not in text


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("_NoInit", r"_NoInit: has no constructor that Python can call \(torch::init\)"),
        ("_StackString", r"its constructor takes List\[str\], which no declaration can carry"),
        ("_FooReadWrite", r"none of its methods can be declared: it has none but what reads its"),
    ],
)
def test_what_no_declaration_can_say_is_refused(name, message):
    with pytest.raises(DeclarationError, match=message):
        draft(name)


def test_an_example_has_the_constructor_and_calls_of_methods():
    text = draft("_Foo", "5, 6; add(7)")
    assert '        "x": 5,\n        "y": 6,\n        "arg1": 7,\n' in text


@pytest.mark.parametrize(
    ("example", "message"),
    [
        ("5, 6; nothing(7)", r"the example calls 'nothing'; its methods are info, increment, add"),
        ("5, 6; 7", r"the example has '7', expected a call of a method: forward\(\.\.\.\)"),
        ("5, 6; add(", r"cannot be read .*Write the constructor's arguments, then calls: 2, torch"),
        ("5, 6; add('a')", r"_Foo\.add: refuses the example: add\(\) Expected a value of type"),
    ],
)
def test_an_example_that_does_not_fit_is_refused(example, message):
    with pytest.raises(DeclarationError, match=message):
        draft("_Foo", example)


def test_a_name_is_that_of_a_class_only_where_there_is_one():
    assert is_class("_TorchScriptTesting::_Foo")
    assert not is_class("_TorchScriptTesting::_Nothing")
    assert not is_class("aten::asinh")


@pytest.fixture(scope="module")
def of_attributes():
    """A class whose state is attributes: one of opsmith's, registered as C++ does it."""

    @opsmith.custom_class("draft_class_test::Sum")
    class Sum:
        count: int
        total: Float[Tensor, "C"]

        @opsmith.method(mutates=("count", "total"))
        def forward(self, x: Float[Tensor, "N C"]) -> Float[Tensor, "N C"]:
            self.count += 1
            self.total += x.sum(0)
            return x / self.count

    return "draft_class_test::Sum"


def test_sizes_are_named_once_for_fields_and_arguments(of_attributes):
    text = draft_class(of_attributes, "3, torch.rand(4); forward(torch.rand(5, 4))")
    lines = members(text)
    assert lines[:2] == ["count: int", 'total: Float[Tensor, "N"]']
    assert 'def forward(self, x: Float[Tensor, "M N"]) -> Float[Tensor, "M N"]:' in lines
    assert "return cls(original.count, original.total)" in lines
    assert '        "total": torch.rand(4).to(dtype),\n' in text


def test_where_no_call_is_found_the_object_and_what_to_give_are_said(of_attributes, monkeypatch):
    monkeypatch.setattr(examples, "_SECONDS", 1.0)
    with pytest.raises(
        DeclarationError,
        match=r"Sum:.*\n  forward: no call was found that it takes, of an object with count = "
        r"2, total = float32 \(4, 6\)\. Give both, as in --example \"2, torch\.ones\(2\); "
        r"forward\(torch\.rand\(2, 3\)\)\"; its parameters are \(x\)",
    ):
        draft_class(of_attributes)


@pytest.mark.parametrize("name", ["_Foo", "_TensorQueue"])
def test_what_is_written_declares_the_class(name, tmp_path):
    file = tmp_path / f"drafted{name.lower()}.py"
    file.write_text(draft(name))
    import_operators(str(file))
    short = name.lstrip("_")
    made = find(f"TorchScriptTesting_declared::{short}")
    arguments = {"_Foo": (3, 4), "_TensorQueue": (torch.ones(2, 3),)}[name]
    original = getattr(torch.classes._TorchScriptTesting, name)(*arguments)
    ours = made.of(original)
    if name == "_Foo":
        ours.increment(2)
        original.increment(2)
        assert (ours.x, ours.y) == (5, 6)
        assert ours.info() == original.info() == 30
        assert (
            ours.add_tensor(torch.ones(2)).tolist() == original.add_tensor(torch.ones(2)).tolist()
        )
    else:
        assert torch.equal(ours.top(), original.top())
        assert ours.size() == original.size() == 0
