"""What is derived from a declaration: schema, which names bind where, what may be empty."""

from __future__ import annotations

from typing import Annotated, Any

import declarations
import jaxtyping
import pytest
import torch
from jaxtyping import AbstractDtype
from torch import Tensor

from opsmith.signature import Between, NonDifferentiable, signature_of
from opsmith.signature.constraints import Bound, Order, PartStarts, Sum, ValueRange, range_text
from opsmith.signature.declare import split_qualname
from opsmith.signature.dtypes import ALL_DTYPES, known_dtypes
from opsmith.signature.parameters import NO_DEFAULT, ScalarType
from opsmith.signature.sizes import expressions, shapes

ORDER_INDEX = "order [0 <= value < 3]"
FLOATS = "float16 bfloat16 float32 float64"


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        (
            'f(x: Float[Tensor, "N"], y: Float[Tensor, "N"], z: Tensor) -> None; '
            "mutates_args=('x', 'z')",
            "f(Tensor(a!) x, Tensor y, Tensor(b!) z) -> ()",
        ),
        ("f(x: list[Tensor]) -> list[Tensor]", "f(Tensor[] x) -> Tensor[]"),
        ("f(x: Tensor) -> tuple[Tensor, list[Tensor]]", "f(Tensor x) -> (Tensor, Tensor[])"),
        (
            "f(x: Tensor, *, k: int, j: int) -> Tensor",
            "f(Tensor x, *, SymInt k, SymInt j) -> Tensor",
        ),
        ("f(x: Tensor | None = None) -> Tensor", "f(Tensor? x=None) -> Tensor"),
        ("f(k: tuple[float, float] = (1, 2.5)) -> Tensor", "f(float[] k=[1, 2.5]) -> Tensor"),
        ("f(k: tuple[int, int] = (1, 2)) -> Tensor", "f(SymInt[2] k=[1, 2]) -> Tensor"),
        ("f(k: list[str] = ['a', 'b']) -> Tensor", 'f(str[] k=["a", "b"]) -> Tensor'),
        (r"f(k: str = 'a\\b\"c') -> Tensor", r'f(str k="a\\b\"c") -> Tensor'),
        ("f(k: list[bool] = [True]) -> Tensor", "f(bool[] k=[True]) -> Tensor"),
        ("f(k: float = 1) -> Tensor", "f(float k=1) -> Tensor"),
    ],
)
def test_the_schema_is_what_pytorch_reads(line: str, expected: str) -> None:
    assert declarations.declared(line).schema() == expected


@pytest.mark.parametrize(
    ("line", "property_", "expected"),
    [
        ('f(x: Float[Tensor, "N"], y: Int32[Tensor, "M"]) -> Tensor', "dims", ("N", "M")),
        ('f(x: Float[Tensor, "N *s"]) -> Tensor', "variadic_dims", {"s"}),
        ('f(x: Float[Tensor, "N ..."]) -> Tensor', "variadic_dims", set()),
        # A required tensor binds before a list, and a list before what may be absent.
        (
            'f(a: Float[Tensor, "N"] | None, b: list[Float[Tensor, "N M"]], '
            'c: Float[Tensor, "N"], d: Float[Tensor, "M"] | None) -> Tensor',
            "dim_sources",
            {"M": "b", "N": "c"},
        ),
        (
            'f(a: Float[Tensor, "N"] | None, b: Float[Tensor, "K"]) -> Tensor',
            "certain_dims",
            {"K"},
        ),
        ('f(a: list[Float32[Tensor, "N"]]) -> Float32[Tensor, "N"]', "certain_dims", {"N"}),
        ('f(a: list[Float32[Tensor, "N"]]) -> Tensor', "certain_dims", set()),
        ('f(a: list[Float32[Tensor, "N"]]) -> Tensor', "nonempty", {}),
        ('f(a: list[Float[Tensor, "N"]]) -> Float[Tensor, "3"]', "nonempty", {"a": ("the dtype",)}),
        (
            'f(a: list[Float32[Tensor, "N M"]]) -> Float32[Tensor, "M+N"]',
            "nonempty",
            {"a": ("M", "N")},
        ),
        ('f(a: list[Float32[Tensor, "*s"]]) -> Float32[Tensor, "*s"]', "nonempty", {"a": ("s",)}),
        ('f(a: list[Float32[Tensor, "N 2*N"]]) -> Tensor', "nonempty", {}),
        (
            'f(a: list[Float32[Tensor, "N"]], b: Float32[Tensor, "N//2"]) -> Tensor',
            "nonempty",
            {"a": ("N",)},
        ),
        (
            'f(a: list[Float32[Tensor, "N"]], k: Annotated[int, Index("N")]) -> Tensor',
            "nonempty",
            {"a": ("N",)},
        ),
        ('f(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]', "shaped", True),
        ('f(x: Float[Tensor, "N"]) -> tuple[Float[Tensor, "N"], Tensor]', "shaped", False),
        ('f(x: Float[Tensor, "N"]) -> list[Float[Tensor, "N"]]', "shaped", False),
        ('f(x: Float32[Tensor, "N"]) -> Tensor', "generic", None),
        ("f(x: Tensor) -> Tensor", "generic", None),
        (
            'f(x: Annotated[Float[Tensor, "N"], NonDifferentiable()], y: Tensor) -> Tensor',
            "nondifferentiable",
            {"x"},
        ),
        (
            'f(x: Annotated[Int64[Tensor, "N M"], Index("K*2")], y: Float[Tensor, "K"]) -> Tensor',
            "constrained_dims",
            {"K"},
        ),
        (
            'f(x: Annotated[Int64[Tensor, "N M"], Sorted()]) -> Tensor',
            "constrained_dims",
            {"M"},
        ),
        (
            'f(x: Annotated[Int64[Tensor, "N M K"], Total(1, of="shapes")]) -> Tensor',
            "constrained_dims",
            {"M", "K"},
        ),
        (
            'f(x: Float[Tensor, "N M"], k: Annotated[list[int], Sorted(0, "N")], '
            'j: Annotated[list[int], Index("M")], i: Annotated[int, Index("M")]) -> Tensor',
            "told_dims",
            {"N"},
        ),
        ('f(x: Annotated[Int64[Tensor, "N"], Total("N")]) -> Tensor', "told_dims", set()),
    ],
)
def test_what_follows_from_a_declaration(line: str, property_: str, expected: Any) -> None:
    found = getattr(declarations.declared(line), property_)
    assert found == expected
    if isinstance(expected, dict):
        assert list(found) == list(expected)


@pytest.mark.parametrize(
    ("line", "names", "label"),
    [
        ('f(x: Num[Tensor, "N"], y: Float[Tensor, "N"]) -> Tensor', FLOATS, "Float"),
        ('f(x: Float[Tensor, "N"]) -> Num[Tensor, "N"]', FLOATS, "Float"),
        (
            'f(x: Int[Tensor, "N"], y: Tensor, z: Bool[Tensor, "N"]) -> Tensor',
            "int8 int16 int32 int64",
            "Int",
        ),
    ],
)
def test_a_call_has_the_dtypes_that_every_generic_tensor_has(
    line: str, names: str, label: str
) -> None:
    generic = declarations.declared(line).generic
    assert generic is not None
    assert (" ".join(generic.names), generic.label) == (names, label)


def test_a_parameter_says_what_it_is() -> None:
    signature = declarations.declared(
        'f(x: Tensor, xs: list[Float[Tensor, "N"]], k: int, s: tuple[int, int] = (1, 2), '
        "*, m: Annotated[float, Positive(), Between(high=3)] = 1.0) -> Tensor"
    )
    kinds = ("is_tensor", "is_tensor_list", "is_scalar", "is_sequence", "keyword_only")
    assert [[bool(getattr(p, kind)) for kind in kinds] for p in signature.parameters] == [
        [True, False, False, False, False],
        [False, True, False, False, False],
        [False, False, True, False, False],
        [False, False, False, True, False],
        [False, False, True, False, True],
    ]
    assert [str(p.type) for p in signature.parameters] == [
        "Tensor", 'list[Float[Tensor, "N"]]', "int", "tuple[int, int]", "float",
    ]  # fmt: skip
    assert [p.name for p in signature.tensors] == ["x", "xs"]
    assert [p.tensor_type is None for p in signature.parameters] == [False, False, True, True, True]
    assert len(signature.parameter("m").ranges) == 2
    assert repr(signature.parameter("k").default) == repr(NO_DEFAULT) == "NO_DEFAULT"
    assert signature.parameter("s").default == (1, 2)


@pytest.mark.parametrize(
    ("name", "hint"),
    [
        ("f", ""),
        ("ns.f", " (overloads are not declared: give each its own name)"),
        ("ns::f.x", " (overloads are not declared: give each its own name)"),
        ("ns::1f", ""),
        (3, ""),
    ],
)
def test_an_operator_has_a_namespace_and_a_name(name: Any, hint: str) -> None:
    with pytest.raises(declarations.DeclarationError) as caught:
        split_qualname(name)
    assert str(caught.value) == (
        f"an operator is named 'namespace::name', both identifiers; got {name!r}{hint}"
    )
    assert split_qualname("ns::f_1") == ("ns", "f_1")


@pytest.mark.parametrize(("name", "word"), [("ns::else", "else"), ("class::f", "class")])
def test_an_operator_is_not_named_after_a_keyword(name: str, word: str) -> None:
    with pytest.raises(declarations.DeclarationError) as caught:
        split_qualname(name)
    assert str(caught.value) == f"{name}: {word!r} is a keyword of Python; choose another name"
    assert split_qualname("ns::match") == ("ns", "match")


def test_the_words_of_a_shape_are_what_spaces_separate() -> None:
    shape = shapes.parse("  N  *s _x 2*(N + 1) rows=4 {k [0]} ", ("k",))
    assert [str(dim) for dim in shape.dims] == ["N", "*s", "_", "2*(N+1)", "4", "k[0]"]
    assert (shape.rank, shape.variadic, shape.binds()) == (5, 1, ("N", "s"))
    other = shapes.parse("a *_ a b")
    assert [str(dim) for dim in other.dims] == ["a", "...", "a", "b"]
    assert (other.rank, other.variadic, other.binds()) == (3, 1, ("a", "b"))
    assert shapes.parse("").dims == ()
    assert shapes.parse("a b").variadic is None
    for text, said in (
        ("*a *b", "has more than one '*name' or '...'; at most one can be matched"),
        ("*1", "dimension '*1': a name must follow the *"),
        ("*", "dimension '*': a name must follow the *"),
    ):
        with pytest.raises(shapes.ShapeError) as caught:
            shapes.parse(text)
        assert str(caught.value) == said


def test_the_facts_tell_any_two_declarations_apart() -> None:
    def declared(x: Any, k: Any, result: Any, default: Any = 1, **more: Any) -> str:
        def function(x, k=default): ...

        function.__annotations__ = {"x": x, "k": k, "return": result}
        return signature_of(function, "ns::f", **more).facts()

    class Float(AbstractDtype):
        dtypes = ("float16", "float32")

    taken, vector = jaxtyping.Float[Tensor, "N M"], jaxtyping.Float[Tensor, "N"]
    found = [
        declared(taken, int, vector),
        declared(taken, int, vector, 2),
        declared(taken, int, jaxtyping.Float[Tensor, "M"]),
        declared(taken, int, jaxtyping.Float32[Tensor, "N"]),
        declared(jaxtyping.Float[Tensor, "M N"], int, vector),
        declared(Float[Tensor, "N M"], int, Float[Tensor, "N"]),
        declared(Annotated[taken, NonDifferentiable()], int, vector),
        declared(taken, Annotated[int, Between(0, "N")], vector),
        declared(taken, Annotated[int, Between(0, "M")], vector),
        declared(taken, int, vector, mutates_args=("x",)),
        declared(taken, int, vector, parallel_dims=("N",)),
    ]
    assert len(set(found)) == len(found)
    assert found[0] == declared(taken, int, vector)


def test_dtypes_come_in_one_order() -> None:
    assert known_dtypes(["int64", "bool", "quint8"]) == ("bool", "int64")
    assert known_dtypes(reversed(ALL_DTYPES)) == ALL_DTYPES


def test_a_constraint_says_what_it_compares() -> None:
    half, total = Bound(0.5), Bound(expressions.parse("N*2"))
    assert (str(half), half.reason, half.shown({}, {})) == ("0.5", None, "0.5")
    assert (str(total), total.reason, total.shown({"N": 3}, {})) == ("N*2", "N*2", "6 (N*2)")
    assert Bound(expressions.Integer(3)).reason is None
    assert Sum(total).text(4) == "adds up to 4"
    assert Sum(total, shapes=True).text(4) == "has shapes of 4 elements together"
    assert PartStarts("n").text == "the sum of 'n' before it"
    assert PartStarts("n", shapes=True).text == "the elements of the shapes in 'n' before it"
    run = ValueRange(Bound(expressions.Integer(0)), total, start="a")
    assert range_text(run, {"N": 3}, {}) == "0 <= value and a + value <= 6 (N*2)"
    assert [c.along for c in (run, Order(None, None), Sum(half), Sum(half, True))] == [0, 1, 1, 2]
    assert (run.reads, Order(None, None).reads, PartStarts("n").reads) == (("a",), (), ("n",))
    assert (Order(half, total).bounds, Order(None, half).bounds) == ((half, total), (half,))
    assert (PartStarts("n").bounds, Sum(total).expressions()) == ((), (total.value,))
    assert ValueRange(half, None).expressions() == ()


@pytest.mark.parametrize(
    ("text", "shown", "value"),
    [
        ("-n", "0-n", -7),
        ("-3", "-3", -3),
        ("-{k}", "0-k", -2),
        ("n-(k-1)", "n-(k-1)", 6),
        ("n-(k*3)+1", "n-k*3+1", 2),
        ("(n-k)*2", "(n-k)*2", 10),
        ("n*k+1", "n*k+1", 15),
        ("n//(k*2)", "n//(k*2)", 1),
        ("min({k},n,{s[1]})", "min(k,n,s[1])", 2),
        ("{max(k,n)}", "max(k,n)", 7),
        ("{min(k,n)}+{k}", "min(k,n)+k", 4),
    ],
)
def test_an_expression_is_shown_as_it_counts(text: str, shown: str, value: int) -> None:
    scalars = {"k": 2, "s": (3, 4), "n": 7} if "{m" in text else {"k": 2, "s": (3, 4)}
    parsed = expressions.parse(text, scalars)
    assert expressions.text(parsed).replace(" ", "") == shown
    assert expressions.evaluate(parsed, {"n": 7}, scalars) == value


@pytest.mark.parametrize(
    "text", ["{unknown}+{k}", "{k}+{unknown}", "-{unknown}", "min({k},{unknown})"]
)
def test_every_name_in_braces_is_an_argument(text: str) -> None:
    with pytest.raises(expressions.ExpressionError, match=r"^{unknown} names no int argument"):
        expressions.parse(text, {"k": 2})


@pytest.mark.parametrize("text", ["-(n**2)", "n**2+1", "1+n**2", "min(n**2,1)"])
def test_an_operator_that_sizes_do_not_have_is_said_of_the_whole(text: str) -> None:
    with pytest.raises(expressions.ExpressionError) as caught:
        expressions.parse(text)
    assert str(caught.value).startswith(f"{text!r} uses an operator that sizes do not have")


def test_leaves_are_found_inside_calls() -> None:
    found = expressions.leaves(expressions.parse("min(n,{k}+1)*m", ("k",)))
    assert [getattr(leaf, "name", None) or str(leaf) for leaf in found] == [
        "n", "Scalar(parameter='k', index=None)", "Integer(value=1)", "m",
    ]  # fmt: skip


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        ('Annotated[Int64[Tensor, "N"], Index(3)]', "[0 <= value < 3]"),
        ('Annotated[Annotated[Int64[Tensor, "N"], Index(3)] | None, Sorted()]', ORDER_INDEX),
        ('Annotated[Int64[Tensor, "N"], Total(3)]', "[0 <= value] sum"),
        ('Annotated[Int64[Tensor, "N"], Total(3), Sorted()]', "[0 <= value] sum order"),
        ('Annotated[Int64[Tensor, "N"], Total(3), Positive()]', "sum [1 <= value]"),
        ('Annotated[Int64[Tensor, "N"], Extent("n", 9)]', "[0 <= value and n + value <= 9]"),
        ('Annotated[Int64[Tensor, "N"], Starts("n")]', "starts False"),
        ('Annotated[Int64[Tensor, "N"], Starts("shapes")]', "starts True"),
        ('Annotated[Int64[Tensor, "N N"], Between("N")]', "[7 <= value]"),
    ],
)  # fmt: skip
def test_what_an_annotation_says_of_values_is_kept_in_order(annotation: str, expected: str) -> None:
    signature = declarations.declared(
        f'f(n: Int64[Tensor, "N"], shapes: Int64[Tensor, "N 2"], x: {annotation}) -> Tensor'
    )
    said = []
    for constraint in signature.parameter("x").constraints:
        match constraint:
            case ValueRange():
                said.append(f"[{range_text(constraint, {'N': 7}, {})}]".replace(" (N)", ""))
            case PartStarts(_, by_shape):
                said.append(f"starts {by_shape}")
            case _:
                said.append(type(constraint).__name__.lower())
    assert " ".join(said) == expected


def test_marks_add_up_and_a_choice_is_a_text() -> None:
    signature = declarations.declared(
        'f(x: Annotated[Annotated[Float[Tensor, "N"], NonDifferentiable()], Positive()], '
        'y: Annotated[Float[Tensor, "N"], Doc("half of x")], k: Literal["a", "b"]) -> Tensor'
    )
    x, y, k = signature.parameters
    assert (x.differentiable, len(x.constraints), y.differentiable, y.constraints) == (
        False, 1, True, (),
    )  # fmt: skip
    assert k.type == ScalarType("str", ("a", "b"))
    assert str(ScalarType("str", ('a"b', "c\\d"))) == r'Literal["a\"b", "c\\d"]'
    two = declarations.declared('f(x: Num[Tensor, "N"]) -> Tensor; parallel_dims=()').parameters[0]
    assert two.tensor_type is not None
    assert "float8_e5m2" not in two.tensor_type.dtypes and "complex64" in two.tensor_type.dtypes


def test_a_signature_keeps_what_the_author_claims() -> None:
    line = 'f(x: Float[Tensor, "N"]) -> Float[Tensor, "N K"]; data_dependent=["K"], '
    signature = declarations.declared(line + 'parallel_dims=["N"]')
    assert (signature.data_dependent, signature.parallel_dims) == (("K",), ("N",))
    assert signature.doc == ""

    def documented(x: torch.Tensor) -> torch.Tensor:
        """Says what it does."""
        return x

    assert signature_of(documented, "ns::f").doc == "Says what it does."
