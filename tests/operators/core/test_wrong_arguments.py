"""An argument of the wrong kind is refused by name, whatever it is and however the call is made."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from jaxtyping import Float
from torch import Tensor

import opsmith
from opsmith import ArgumentError, OpsmithError

SOURCE = """
#include <opsmith/kernel.h>
#include "native.h"

template <typename T>
void native(const opsmith::Context& ctx, const wrong_arguments::native_args<T>& a) {
  if (a.number == 13) throw std::runtime_error("argument 'number' brings bad luck");
  std::copy(a.x.data(), a.x.data() + a.x.numel(), a.out.data());
}
OPSMITH_KERNEL(wrong_arguments, native, cpu, float, double)
"""


def every_kind(
    x: Float[Tensor, "N"],
    maybe: Float[Tensor, "N"] | None,
    many: list[Float[Tensor, "N"]],
    number: int,
    real: float,
    flag: bool,
    text: str,
    sizes: Sequence[int],
    pair: tuple[int, int],
    reals: Sequence[float] = (),
    maybe_number: int | None = None,
    maybe_real: float | None = None,
    maybe_flag: bool | None = None,
    maybe_text: str | None = None,
    maybe_sizes: Sequence[int] | None = None,
    maybe_many: list[Float[Tensor, "N"]] | None = None,
    *,
    last: int = 0,
) -> Float[Tensor, "N"]:
    """A copy of `x`."""
    return x.clone()


def declare(name: str) -> opsmith.Operator:
    return opsmith.op(f"wrong_arguments::{name}", every_kind)


python = declare("python")
python.register_autograd(lambda ctx, grad: (grad, *[None] * 15))


@pytest.fixture(scope="module")
def native(tmp_path_factory: pytest.TempPathFactory) -> opsmith.Operator:
    source = Path(tmp_path_factory.mktemp("wrong") / "native.cpp")
    source.write_text(SOURCE)
    operator = declare("native")
    operator.register_kernel("cpu", source=source, flags=("-O0",))
    operator.build()
    return operator


@pytest.fixture(params=["native", "python"])
def operator(request: pytest.FixtureRequest) -> opsmith.Operator:
    """The same declaration with a kernel in C++, and with its reference alone."""
    return python if request.param == "python" else request.getfixturevalue("native")


X = torch.ones(3)
GOOD: dict[str, Any] = {
    "x": X,
    "maybe": X,
    "many": [X],
    "number": 1,
    "real": 1.0,
    "flag": True,
    "text": "a",
    "sizes": [1, 2],
    "pair": (1, 2),
    "reals": [0.5],
    "maybe_number": 1,
    "maybe_real": 1.0,
    "maybe_flag": True,
    "maybe_text": "a",
    "maybe_sizes": [1],
    "maybe_many": [X],
    "last": 1,
}
THINGS: dict[str, Any] = {
    "none": None,
    "ints": [1],
    "tensors": [X],
    "empty": [],
    "hole": [X, None],
    "strings": ["a"],
    "triple": (1, 2, 3),
    "int": 3,
    "float": 2.5,
    "bool": True,
    "complex": 1j,
    "huge": 2**70,
    "str": "abc",
    "array": np.ones(3),
    "scalar": np.int64(3),
    "tensor": X,
    "object": object(),
    "dict": {"a": 1},
    "dtype": torch.float32,
    "sparse": torch.ones(3).to_sparse(),
    "meta": torch.ones(3, device="meta"),
    "int tensor": torch.ones(3, dtype=torch.int64),
    "other size": torch.ones(4),
}
# PyTorch converts these for its own operators too, without a word.
NUMBERS = {"int", "bool", "scalar"}
FITS: dict[str, set[str]] = {
    "x": {"tensor"},
    "maybe": {"tensor", "none"},
    "many": {"tensors", "empty"},
    "number": NUMBERS,
    "real": {*NUMBERS, "float", "huge"},
    "flag": {*NUMBERS, "float", "huge", "complex", "none"},
    "text": {"str"},
    "sizes": {"ints", "empty", "triple", "int tensor"},
    "pair": set(),
    "reals": {"ints", "empty", "triple", "array"},
    "last": NUMBERS,
}
FITS |= {
    f"maybe_{name}": {*FITS[plain], "none"}
    for name, plain in [(n, n) for n in ("number", "real", "flag", "text", "sizes", "many")]
}
WRONG = [
    (name, thing)
    for name in GOOD
    for thing in THINGS
    # One size more is no mistake where N is bound by this argument.
    if thing not in FITS[name] and (name, thing) != ("x", "other size")
]


def refused(call: Callable[[], Any], kind: Any, qualname: str, name: str) -> str:
    with pytest.raises(kind) as caught:
        call()
    message = str(caught.value)
    assert qualname in message
    assert f"'{name}" in message
    return message


@pytest.mark.slow
def test_good_arguments_pass(operator: opsmith.Operator) -> None:
    assert torch.equal(operator(**GOOD), X)
    for name, fits in FITS.items():
        for thing in fits:
            assert operator(**{**GOOD, name: THINGS[thing]}).shape == (3,)


def test_a_call_names_operator_and_argument(operator: opsmith.Operator) -> None:
    for name, thing in WRONG:
        arguments = {**GOOD, name: THINGS[thing]}
        message = refused(lambda a=arguments: operator(**a), ArgumentError, operator.name, name)
        assert "expected" in message, (name, thing, message)
        assert "PyTorch refused" not in message


def test_a_call_through_torch_ops_names_them_too(operator: opsmith.Operator) -> None:
    plain = getattr(torch.ops.wrong_arguments, operator.signature.name)
    for name, thing in WRONG:
        if thing == "sparse" and name not in ("x", "maybe"):
            continue  # PyTorch reads its element, and fails without saying of what
        arguments = {**GOOD, name: THINGS[thing]}
        refused(lambda a=arguments: plain(**a), RuntimeError, operator.name, name)


def test_a_call_that_is_differentiated_names_them_too(operator: opsmith.Operator) -> None:
    for name, thing in WRONG:
        given = {**GOOD, "maybe": X.clone().requires_grad_()}
        arguments = {**given, name: THINGS[thing]}
        refused(lambda o=operator, a=arguments: o(**a), ArgumentError, operator.name, name)


# Some of each kind: what is no value of a traced program is PyTorch's to refuse.
TRACED = {"none", "hole", "strings", "triple", "float", "str", "tensor", "int tensor"}


@pytest.mark.slow(cases=2)
@pytest.mark.parametrize("name", GOOD)
def test_a_compiled_call_names_them_too(operator: opsmith.Operator, name: str) -> None:
    for thing in [t for wrong, t in WRONG if wrong == name and t in TRACED]:
        torch._dynamo.reset()
        arguments = {**GOOD, name: THINGS[thing]}
        compiled = torch.compile(lambda a, o=operator: o(**a), fullgraph=True, backend="aot_eager")
        refused(lambda c=compiled, a=arguments: c(a), RuntimeError, operator.name, name)


def test_an_export_names_them_too() -> None:
    class Model(torch.nn.Module):
        def __init__(self, given: dict[str, Any]) -> None:
            super().__init__()
            self.given = given

        def forward(self, x: Tensor) -> Tensor:
            return python(**{"x": x, **self.given})

    rest = {name: value for name, value in GOOD.items() if name != "x"}
    for name, thing in [("x", "none"), ("many", "hole"), ("number", "float"), ("pair", "triple")]:
        model = Model({**rest, name: THINGS[thing]})
        refused(lambda m=model: torch.export.export(m, (X,)), RuntimeError, python.name, name)


def test_the_words(operator: opsmith.Operator) -> None:
    words = {
        ("x", "none"): "argument 'x' is None, expected Float[Tensor, \"N\"].",
        ("many", "hole"): "argument 'many[1]' is None, expected Float[Tensor, \"N\"].",
        (
            "maybe",
            "float",
        ): "argument 'maybe' is 2.5 (float), expected Float[Tensor, \"N\"] or None.",
        ("number", "huge"): f"argument 'number' is {2**70}, expected an int of 64 bits.",
        ("number", "tensor"): "argument 'number' is a tensor of shape (3,), expected int.",
        ("pair", "triple"): "argument 'pair' has 3 elements, expected 2.",
        ("sizes", "strings"): "argument 'sizes[0]' is 'a' (str), expected int.",
        ("text", "array"): "argument 'text' is of type ndarray, expected str.",
        ("x", "sparse"): "argument 'x' is a tensor of layout sparse_coo, expected a dense one.",
    }
    for (name, thing), text in words.items():
        with pytest.raises(ArgumentError) as caught:
            operator(**{**GOOD, name: THINGS[thing]})
        assert str(caught.value).splitlines()[0] == f"{operator.name}: {text}"


def test_none_has_the_same_words_through_torch_ops(operator: opsmith.Operator) -> None:
    with pytest.raises(RuntimeError, match=r"argument 'x' is None, expected Float"):
        operator.overload(**{**GOOD, "x": None})


def test_too_many_too_few_and_unknown_arguments(operator: opsmith.Operator) -> None:
    values = list(GOOD.values())
    mistakes: dict[str, Callable[[Any], Any]] = {
        "argument 'maybe' is missing.": lambda o: o(X),
        "takes 17 arguments, got 19.": lambda o: o(*values, 1, 2),
        "argument 'last' must be given by name: last=...": lambda o: o(*values),
        "has no argument 'z'; there are x, maybe, many": lambda o: o(**GOOD, z=1),
        "argument 'x' is given twice.": lambda o: o(X, **GOOD),
    }
    for text, call in mistakes.items():
        with pytest.raises(ArgumentError) as caught:
            call(operator)
        assert str(caught.value).startswith(f"{operator.name}: {text}")


def test_what_a_kernel_says_is_no_argument_error(native: opsmith.Operator) -> None:
    with pytest.raises(OpsmithError) as caught:
        native(**{**GOOD, "number": 13})
    assert type(caught.value) is OpsmithError
    assert str(caught.value) == "wrong_arguments::native: argument 'number' brings bad luck"


def test_what_a_python_kernel_raises_stays_what_it_is() -> None:
    @opsmith.op("wrong_arguments::raises")
    def raises(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        raises(X)


def test_a_tensor_to_be_written_whose_elements_share_memory() -> None:
    @opsmith.op("wrong_arguments::fill", mutates_args=("x",))
    def fill(x: Float[Tensor, "N M"]) -> None:
        x.zero_()

    with pytest.raises(ArgumentError, match=r"'x' is written, but its elements share memory: dim"):
        fill(torch.ones(3, 1).expand(3, 2))


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("a" * 60, f"'{'a' * 60}' (str)"),
        ("a" * 61, "a str of 61 characters"),
        (10**5000, "an int of 16610 bits"),
        (2**64, "18446744073709551616"),
    ],
    ids=["text", "long text", "huge", "large"],
)
def test_of_a_long_value_the_message_says_how_long_it_is(value, shown):
    with pytest.raises(ArgumentError, match=re.escape(f"argument 'number' is {shown}, expected")):
        python(torch.ones(2), None, [], value, 1.0, True, "", [], (1, 2))
