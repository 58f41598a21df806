"""What a Python kernel returns is compared with the declaration, and named in messages."""

from __future__ import annotations

from typing import Any

import declarations
import numpy
import pytest
import torch
from jaxtyping import Complex, Float
from torch import Tensor

import opsmith
from opsmith import ArgumentError, OpsmithError
from opsmith.operators.core import arguments, registry
from opsmith.operators.core.registry import Registry
from opsmith.operators.core.validation import Validator, checked_results

ONE = 'f(x: Float[Tensor, "N"]) -> Float[Tensor, "N 2"]'
TWO = 'f(x: Float[Tensor, "N"]) -> tuple[Float[Tensor, "N"], Int64[Tensor, "1"]]'
DATA = 'f(x: Float[Tensor, "N"]) -> tuple[Float[Tensor, "K"], Float[Tensor, "K N"]]; '
DATA += 'data_dependent=("K",)'
TWICE = 'f(x: Float[Tensor, "N"]) -> tuple[Float[Tensor, "N"], Float[Tensor, "N"]]'
PLAIN = 'f(x: Float[Tensor, "N"]) -> Tensor'
NOTHING = 'f(x: Float[Tensor, "N"]) -> None; mutates_args=("x",)'


def returned(line: str, x: Tensor, value: Any) -> Any:
    signature = declarations.declared(line)
    given = {"x": x}
    return checked_results(signature, given, Validator(signature)(given), value, "the reference")


@pytest.mark.parametrize(
    ("line", "value", "said"),
    [
        (ONE, 3, 'returned int as its result, expected Float[Tensor, "N 2"].'),
        (
            ONE,
            torch.ones(3, 3),
            "returned its result with shape (3, 3) and dtype float32, expected "
            'Float[Tensor, "N 2"]: (3, 2) and float32.\n  bound so far: N=3',
        ),
        (
            ONE,
            torch.ones(3, 2, dtype=torch.float64),
            "returned its result with shape (3, 2) and dtype float64, expected "
            'Float[Tensor, "N 2"]: (3, 2) and float32.\n  bound so far: N=3',
        ),
        (
            ONE,
            numpy.int64(3),
            'returned numpy.int64 as its result, expected Float[Tensor, "N 2"]. Wrap it by '
            "torch.as_tensor(…).",
        ),
        (TWO, torch.ones(3), "returned Tensor, expected 2 results."),
        (TWO, (torch.ones(3),), "returned tuple, expected 2 results."),
        (
            TWO,
            (torch.ones(3), torch.ones(1)),
            "returned its result 'out1' with shape (1,) and dtype float32, expected "
            'Int64[Tensor, "1"]: (1,) and int64.\n  bound so far: N=3',
        ),
        (TWO, (None, None), "returned NoneType as its result 'out0', expected "),
        (
            DATA,
            (torch.ones(2), torch.ones(4, 3)),
            "returned its result 'out1' with shape (4, 3) and dtype float32, expected "
            'Float[Tensor, "K N"]: (2, 3) and float32.\n  bound so far: N=3',
        ),
        (
            DATA,
            (torch.ones(()), torch.ones(4, 2)),
            "returned its result 'out0' with shape () and dtype float32, expected "
            'Float[Tensor, "K"]: (4,) and float32.\n  bound so far: N=3',
        ),
        (NOTHING, 3, "returned int, expected None."),
    ],
)
def test_another_result_than_declared_is_said(line: str, value: Any, said: str) -> None:
    with pytest.raises(ArgumentError) as caught:
        returned(line, torch.ones(3), value)
    assert str(caught.value).startswith(f"ns::f: the reference {said}")
    assert said.endswith("expected ") or str(caught.value) == f"ns::f: the reference {said}"


def test_a_result_in_the_memory_of_an_argument_is_refused() -> None:
    x = torch.ones(3)
    with pytest.raises(ArgumentError) as caught:
        returned('f(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]', x, x.view(3))
    assert str(caught.value) == (
        "ns::f: the reference returned its result in the memory of argument 'x'; results are new "
        "memory, so return a copy (.clone()), or name the argument in mutates_args."
    )
    empty = torch.ones(0)
    line = 'f(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]'
    assert returned(line, empty, empty) is empty


@pytest.mark.parametrize(
    ("line", "whose"),
    [
        (TWICE, "its result 'out1' in the memory of its result 'out0'"),
        ('f(x: Float[Tensor, "N"]) -> tuple[Tensor, Tensor]', "its result 'out1'"),
        ('f(x: Float[Tensor, "N"]) -> list[Float[Tensor, "N"]]', "its result in the memory of its"),
    ],
)
def test_a_result_in_the_memory_of_another_is_refused(line: str, whose: str) -> None:
    made = torch.ones(6)
    for pair in ([made[:3], made[3:]], [made[:3], made[:3]]):
        with pytest.raises(ArgumentError) as caught:
            returned(line, torch.ones(3), pair)
        assert str(caught.value).startswith(f"ns::f: the reference returned {whose}")
        assert str(caught.value).endswith("results are new memory, so return a copy (.clone()).")
    x = torch.ones(3)
    with pytest.raises(ArgumentError, match="in the memory of argument 'x'"):
        returned(line, x, [torch.ones(3), x])
    first, second = returned(line, x, [torch.ones(3), torch.ones(3)])
    assert torch.equal(first, second)


def test_results_that_fit_come_back_contiguous() -> None:
    got = returned(ONE, torch.ones(3), torch.arange(6.0).reshape(2, 3).T)
    assert got.is_contiguous() and got.tolist() == [[0, 3], [1, 4], [2, 5]]
    first, second = returned(TWO, torch.ones(3), [torch.ones(3), torch.ones(1, dtype=torch.int64)])
    assert (first.shape, second.dtype) == ((3,), torch.int64)
    first, second = returned(DATA, torch.ones(3), (torch.ones(2), torch.ones(2, 3)))
    assert (first.shape, second.shape) == ((2,), (2, 3))
    assert returned(PLAIN, torch.ones(3), "anything") == "anything"
    assert returned(NOTHING, torch.ones(3), None) is None


def test_validation_works_out_each_combination_once_and_checks_values_always() -> None:
    line = 'f(x: Annotated[Int64[Tensor, "N"], Index("N")], k: float, s: list[float]) -> Tensor'
    validator = Validator(declarations.declared(line))
    good, bad = torch.tensor([0, 1]), torch.tensor([0, 2])
    first = validator({"x": good, "k": 1.0, "s": [1.0]})
    assert validator({"x": good, "k": 1.0, "s": [1.0]}) is first
    for other in ({"k": 2.0}, {"k": 1}, {"s": [1]}, {"s": []}, {"x": torch.tensor([0])}):
        assert validator({"x": good, "k": 1.0, "s": [1.0], **other}) is not first
    with pytest.raises(ArgumentError, match="has value 2 at index 1"):
        validator({"x": bad, "k": 1.0, "s": [1.0]})
    for number in range(Validator._REMEMBERED + 1):
        validator({"x": good, "k": float(number), "s": []})
    assert len(validator._valid) <= Validator._REMEMBERED


MANY = declarations.declared(
    'f(a: Tensor, xs: list[Float[Tensor, "N"]], y: Float[Tensor, "N"] | None, k: int, '
    "z: Tensor | None) -> tuple[Tensor, list[Tensor]]; mutates_args=('z',)"
)


def test_the_tensors_of_a_call_are_found_in_order() -> None:
    a, x, y, z = (torch.full((1,), float(i)) for i in range(4))
    call = {"a": a, "xs": [x, x], "y": y, "k": 3, "z": z}
    assert [t.item() for t in arguments.tensors(call, MANY)] == [0, 1, 1, 2, 3]
    absent = {**call, "xs": [], "y": None, "z": None}
    assert [t.item() for t in arguments.tensors(absent, MANY)] == [0]
    results = (a, [x, y])
    assert [t.item() for t in arguments.flatten(MANY, results, call)] == [0, 1, 2, 3]
    assert [t.item() for t in arguments.flatten(MANY, results, absent)] == [0, 1, 2]
    assert arguments.output_names(MANY, results, call) == [
        "out0",
        "out1[0]",
        "out1[1]",
        "z (written into)",
    ]
    one = declarations.declared("f(x: Tensor) -> Tensor")
    assert arguments.output_names(one, a, call) == ["the result"]
    assert arguments.output_names(
        declarations.declared("f(x: Tensor) -> list[Tensor]"), [a, a], call
    ) == [
        "the result[0]",
        "the result[1]",
    ]
    nothing = declarations.declared("f(x: Tensor) -> None; mutates_args=('x',)")
    assert arguments.output_names(nothing, None, {"x": a}) == ["x (written into)"]
    assert arguments.flatten(nothing, None, {"x": a}) == [a]
    several = declarations.declared(
        "f(xs: list[Tensor], y: Tensor | None) -> None; mutates_args=('xs', 'y')"
    )
    assert arguments.flatten(several, None, {"xs": [a, x], "y": None}) == [a, x]
    assert arguments.output_names(several, None, {"xs": [a, x], "y": None}) == [
        "xs[0] (written into)",
        "xs[1] (written into)",
    ]


def test_the_generic_dtype_is_that_of_the_first_tensor_with_one() -> None:
    a, x, y = torch.ones(1, dtype=torch.int8), torch.ones(1), torch.ones(1, dtype=torch.float16)
    call = {"a": a, "xs": [x], "y": y, "k": 3, "z": None}
    assert arguments.generic_dtype(MANY, call) == "float32"
    assert arguments.generic_dtype(MANY, {**call, "xs": []}) == "float16"
    assert arguments.generic_dtype(MANY, {**call, "xs": [], "y": None}) is None
    names = {"a": "int8", "xs": ["float64"], "y": "float16", "k": 3, "z": None}
    assert arguments.generic_dtype(MANY, names, arguments.DTYPES.get) == "float64"
    assert arguments.dtype_name(torch.float8_e5m2) == "float8_e5m2"
    assert arguments.dtype_name(torch.quint8) == "quint8"
    assert arguments.is_float8(torch.float8_e5m2) and not arguments.is_float8(torch.float16)


def test_what_binding_looks_at_is_described() -> None:
    call = {"a": torch.ones(2, 3), "xs": [torch.ones(1), None], "y": None, "k": 3, "z": None}
    described = arguments.describe(call, MANY)
    assert (described["a"].shape, described["a"].dtype, described["a"].device) == (
        (2, 3),
        "float32",
        "cpu",
    )
    assert (described["xs"][0].shape, described["xs"][1]) == ((1,), None)
    assert (described["y"], described["k"], described["z"]) == (None, 3, None)
    for value, said in (
        (3, "argument 'xs[1]' is int, expected a tensor."),
        (torch.ones(1).to_sparse(), "argument 'xs[1]' is a tensor of layout sparse_coo, expected a "
         "dense one."),
    ):  # fmt: skip
        with pytest.raises(ArgumentError) as caught:
            arguments.describe({**call, "xs": [torch.ones(1), value]}, MANY)
        assert str(caught.value) == f"ns::f: {said}"


def test_what_was_declared_is_found_by_its_key() -> None:
    entries: Registry[int] = Registry("thing", "made")
    with pytest.raises(OpsmithError) as caught:
        entries.get("a")
    assert str(caught.value) == "no thing 'a' was made; made are: none"
    for key, entry in (("a", 1), ("b", 2), ("a", 3)):
        entries.add(key, entry)
    assert (entries.all(), entries.get("a"), entries.find("b"), entries.find("c")) == (
        (2, 3), 3, 2, None,
    )  # fmt: skip
    with pytest.raises(OpsmithError, match="no thing 'c' was made; made are: b, a"):
        entries.get("c")
    with pytest.raises(OpsmithError, match="no operator 'no::such' was declared; declared are"):
        registry.get("no::such")


def test_a_result_in_the_memory_of_a_list_is_refused_in_every_call():
    @opsmith.op("results_test::from_list")
    def from_list(xs: list[Float[Tensor, "N"]], view: bool) -> Float[Tensor, "N"]:
        return xs[0][:] if view else xs[0].clone()

    given = [torch.ones(3), torch.ones(3)]
    for _ in range(3):  # what was compared once is remembered
        assert from_list(given, False).tolist() == [1, 1, 1]
        with pytest.raises(opsmith.ArgumentError, match="in the memory of argument 'xs'"):
            from_list(given, True)


def test_a_result_of_another_shape_is_refused_after_right_ones():
    wrong = []

    @opsmith.op("results_test::changes")
    def changes(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
        made = x * 2
        return {"shape": made[:1], "dtype": made.double(), "view": x.view(-1)}.get(
            wrong[-1] if wrong else "", made
        )

    for mistake in ("shape", "dtype", "view"):
        wrong.clear()
        for _ in range(2):
            assert changes(torch.ones(3)).tolist() == [2, 2, 2]
        wrong.append(mistake)
        with pytest.raises(
            opsmith.ArgumentError, match=r"results_test::changes: the reference ret"
        ):
            changes(torch.ones(3))


def test_a_result_that_is_conjugated_lazily_is_not_given_on():
    @opsmith.op("results_test::conjugated")
    def conjugated(x: Complex[Tensor, "N"]) -> Complex[Tensor, "N"]:
        return (x * 2).conj()

    for _ in range(3):
        found = conjugated(torch.tensor([1 + 2j]))
        assert not found.is_conj()
        assert found.tolist() == [2 - 4j]
