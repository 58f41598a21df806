"""A declaration is read as it was written, and a mistake in one is refused in words that help."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Literal

import jaxtyping
import numpy as np
import pytest
import torch
from jaxtyping import Complex64, Float, Float32, Int32, Int64, Shaped
from torch import Tensor

from opsmith import Between, DeclarationError, Extent, Index, Positive, Sorted, Starts, Total
from opsmith.signature import Signature, signature_of


def declare(function: Any, **options: Any) -> Signature:
    return signature_of(function, "ns::f", **options)


def everything(
    x: Float[Tensor, "B *rest C"],
    index: Annotated[Int32[Tensor, "P"], Index("B*C")],
    maybe: Float[Tensor, "C"] | None,
    many: list[Float[Tensor, "_ C"]],
    plain: Tensor,
    size: tuple[int, int],
    free: Sequence[int],
    weights: list[float],
    flags: list[bool] | None = None,
    mode: str = 'say "hi"',
    *,
    scale: float = 1.5,
    count: Annotated[int, Between(0, "B")] = 0,
    on: bool = True,
    limit: int | None = None,
) -> tuple[Float[Tensor, "B {size[0]} C"], Int64[Tensor, "min(P,C)+1"]]:
    """Everything at once."""


def test_every_kind_of_parameter_has_its_schema() -> None:
    assert declare(everything).schema() == (
        "f(Tensor x, Tensor index, Tensor? maybe, Tensor[] many, Tensor plain, SymInt[2] size, "
        'SymInt[] free, float[] weights, bool[]? flags=None, str mode="say \\"hi\\"", *, '
        "float scale=1.5, SymInt count=0, bool on=True, SymInt? limit=None) -> (Tensor, Tensor)"
    )


def test_pytorch_takes_the_schema() -> None:
    library = torch.library.Library("opsmith_test_schema", "FRAGMENT")
    library.define(declare(everything).schema())
    assert torch.ops.opsmith_test_schema.f.default._schema.arguments[9].default_value == 'say "hi"'


def test_dimensions_are_bound_in_order() -> None:
    signature = declare(everything)
    assert signature.dims == ("B", "rest", "C", "P")
    assert signature.dim_sources["P"] == "index"
    assert signature.generic is not None
    assert signature.generic.names == ("float16", "bfloat16", "float32", "float64")


def test_mutated_parameters_are_marked() -> None:
    def f(x: Float[Tensor, "N"], y: Float[Tensor, "N"]) -> None: ...

    assert declare(f, mutates_args=("y",)).schema() == "f(Tensor x, Tensor(a!) y) -> ()"


def test_annotations_that_are_strings_see_local_names() -> None:
    Image = Float[Tensor, "C H W"]

    def f(x: Image) -> Image:
        print(Image)  # a closure over the name
        return x

    assert declare(f).dims == ("C", "H", "W")


def test_generic_dtypes_meet() -> None:
    def f(
        x: jaxtyping.Num[Tensor, "N"], y: Float[Tensor, "N"], z: Shaped[Tensor, "N"]
    ) -> Float[Tensor, "N"]: ...

    generic = declare(f).generic
    assert generic is not None
    assert generic.label == "Float"


def _refused(function: Any, **options: Any) -> str:
    with pytest.raises(DeclarationError) as caught:
        declare(function, **options)
    return str(caught.value)


def test_names_are_namespaced_identifiers() -> None:
    for name in ("f", "ns.f", "ns::f.overload", "ns::", "ns::a b"):
        with pytest.raises(DeclarationError, match="namespace::name"):
            signature_of(lambda: None, name)


# Each case: what is declared, and what the message must say.
def no_annotation(x) -> None: ...  # type: ignore[no-untyped-def]
def star_args(*xs: Tensor) -> Tensor: ...  # type: ignore[empty-body]
def two_types(x: int | str) -> Tensor: ...  # type: ignore[empty-body]
def a_dict(x: dict[str, int]) -> Tensor: ...  # type: ignore[empty-body]
def a_dtype(x: torch.dtype) -> Tensor: ...  # type: ignore[empty-body]
def numpy_array(x: Float[np.ndarray, "N"]) -> Tensor: ...  # type: ignore[empty-body]
def broadcasting(x: Float[Tensor, "#N"]) -> Tensor: ...  # type: ignore[empty-body]
def two_stars(x: Float[Tensor, "*a *b"]) -> Tensor: ...  # type: ignore[empty-body]
def power(x: Float[Tensor, "N N**2"]) -> Tensor: ...  # type: ignore[empty-body]
def argument_as_dim(n: int, x: Float[Tensor, "n"]) -> Tensor: ...  # type: ignore[empty-body]
def unknown_argument(x: Float[Tensor, "N {k}"]) -> Tensor: ...  # type: ignore[empty-body]
def beyond_the_end(x: Float[Tensor, "N"], s: tuple[int, int]) -> Float[Tensor, "{s[2]}"]: ...  # type: ignore[empty-body]
def whole_sequence(x: Float[Tensor, "N"], s: tuple[int, int]) -> Float[Tensor, "{s}"]: ...  # type: ignore[empty-body]
def unbound_result(x: Float[Tensor, "N"]) -> Float[Tensor, "N K"]: ...  # type: ignore[empty-body]
def unbound_expression(x: Float[Tensor, "N//2"]) -> Float[Tensor, "2"]: ...  # type: ignore[empty-body]
def optional_binds(x: Float[Tensor, "N"] | None) -> Float32[Tensor, "N"]: ...  # type: ignore[empty-body]
def generic_from_nothing(n: int) -> Float[Tensor, "{n}"]: ...  # type: ignore[empty-body]
def no_common_dtype(
    x: Float[Tensor, "N"], y: jaxtyping.Int[Tensor, "N"], z: jaxtyping.Num[Tensor, "N"]
) -> Tensor: ...  # type: ignore[empty-body]
def index_of_floats(x: Annotated[Float[Tensor, "N"], Index("N")]) -> Tensor: ...  # type: ignore[empty-body]
def empty_between(x: Annotated[Float[Tensor, "N"], Between()]) -> Tensor: ...  # type: ignore[empty-body]
def complex_between(x: Annotated[Complex64[Tensor, "N"], Between(0)]) -> Tensor: ...  # type: ignore[empty-body]
def extent_of_nothing(n: Annotated[Int32[Tensor, "I"], Extent("s", "I")]) -> Tensor: ...  # type: ignore[empty-body]
def positive_flags(x: Annotated[Shaped[Tensor, "N"], Positive()]) -> Tensor: ...  # type: ignore[empty-body]
def only_the_class(x: Annotated[Float[Tensor, "N"], Sorted]) -> Tensor: ...  # type: ignore[empty-body]
def sorted_scalar(x: Tensor, k: Annotated[int, Sorted()]) -> Tensor: ...  # type: ignore[empty-body]
def sorted_anything(x: Annotated[Float[Tensor, "*s"], Sorted()]) -> Tensor: ...  # type: ignore[empty-body]
def sorted_words(x: Tensor, k: Annotated[Sequence[str], Sorted()]) -> Tensor: ...  # type: ignore[empty-body]
def total_of_floats(x: Annotated[Float[Tensor, "N"], Total("N")]) -> Tensor: ...  # type: ignore[empty-body]
def total_of_what(x: Annotated[Int64[Tensor, "N"], Total("N", of="rows")]) -> Tensor: ...  # type: ignore[empty-body,arg-type]
def shapes_in_a_line(x: Annotated[Int64[Tensor, "N"], Total("N", of="shapes")]) -> Tensor: ...  # type: ignore[empty-body]
def total_of_nothing(x: Annotated[Int64[Tensor, "N"], Total("M")]) -> Tensor: ...  # type: ignore[empty-body]
def starts_of_itself(x: Annotated[Int64[Tensor, "N"], Starts("x")]) -> Tensor: ...  # type: ignore[empty-body]
def starts_of_others(
    x: Annotated[Int64[Tensor, "N"], Starts("y")], y: Int64[Tensor, "M"]
) -> Tensor: ...  # type: ignore[empty-body]
def starts_of_absent(
    x: Annotated[Int64[Tensor, "N"], Starts("y")], y: Int64[Tensor, "N"] | None
) -> Tensor: ...  # type: ignore[empty-body]
def list_of_sorted(x: Annotated[list[Float[Tensor, ""]], Sorted()]) -> Tensor: ...  # type: ignore[empty-body]
def numbers(x: Tensor, k: Literal[1, 2]) -> Tensor: ...  # type: ignore[empty-body]
def none_in_literal(x: Tensor, k: Literal["a", "b", None]) -> Tensor: ...  # type: ignore[empty-body]
def other_default(x: Tensor, k: Literal["a", "b"] = "c") -> Tensor: ...  # type: ignore[empty-body,assignment]
def a_generator(x: Tensor, generator: torch.Generator) -> Tensor: ...  # type: ignore[empty-body]
def optional_list_binds(xs: list[Float32[Tensor, "N"]] | None) -> Float32[Tensor, "N"]: ...  # type: ignore[empty-body]
def wrong_default(x: Float[Tensor, "N"], k: int = "a") -> Tensor: ...  # type: ignore[empty-body,assignment]
def none_default(x: Float[Tensor, "N"], k: int = None) -> Tensor: ...  # type: ignore[empty-body,assignment]  # noqa: RUF013
def short_default(x: Tensor, s: tuple[int, int] = (1,)) -> Tensor: ...  # type: ignore[empty-body,assignment]
def texts_default(x: Tensor, names: Sequence[str] = ()) -> Tensor: ...  # type: ignore[empty-body]
def no_result(x: Tensor): ...  # type: ignore[no-untyped-def]
def does_nothing(x: Tensor) -> None: ...
def scalar_result(x: Tensor) -> float: ...  # type: ignore[empty-body]
def optional_result(x: Tensor) -> Tensor | None: ...
def dim_named_like_parameter(x: Float[Tensor, "x"]) -> Tensor: ...  # type: ignore[empty-body]
def named_out(out: Float[Tensor, "N"], result: int) -> Float[Tensor, "N"]: ...  # type: ignore[empty-body]
def unsized_result(x: Float[Tensor, "N"]) -> Float[Tensor, "_"]: ...  # type: ignore[empty-body]
def reads_variadic(x: Float[Tensor, "*s"], y: Float[Tensor, "s+1"]) -> Tensor: ...  # type: ignore[empty-body]
def fixed_tensors(x: tuple[Tensor, Tensor]) -> Tensor: ...  # type: ignore[empty-body]
def undefined_name(x: Undefined[Tensor, "N"]) -> Tensor: ...  # type: ignore[empty-body,name-defined]
def misspelt_dtype(x: Flaot[Tensor, "N"]) -> Tensor: ...  # type: ignore[empty-body,name-defined]
def not_imported(x: UInt4[Tensor, "N"]) -> Tensor: ...  # type: ignore[empty-body,name-defined]
def comma_in_a_shape(x: Float[Tensor, "N, C"]) -> Tensor: ...  # type: ignore[empty-body]


@pytest.mark.parametrize(
    ("function", "said"),
    [
        (no_annotation, "parameter 'x' has no annotation"),
        (star_args, "parameter '*xs': an operator has a fixed list of parameters"),
        (two_types, "int | str is one of several types"),
        (a_dict, "parameter 'x: dict[str, int]': operators do not take this type"),
        (a_dtype, "parameter 'x: dtype': dtype cannot be an argument: a dtype argument would"),
        (numpy_array, "is an array of ndarray; write torch.Tensor there"),
        (broadcasting, "dimension '#N': broadcasting dimensions (#) are not supported"),
        (two_stars, "Cannot use variadic specifiers (`*name` or `...`) more than once"),
        (power, "'N**2' uses an operator that sizes do not have; there are + - * // %"),
        (argument_as_dim, "dimension 'n' is also an argument; write {n}"),
        (unknown_argument, "{k} names no int argument"),
        (beyond_the_end, "reads 's[2]', but 's' has 2 elements"),
        (whole_sequence, "reads 's', a sequence; name one element, s[0]"),
        (unbound_result, 'say so: data_dependent=("K",)'),
        (unbound_expression, "reads 'N', which no argument binds"),
        (optional_binds, "which only 'x' binds, and that may be absent"),
        (generic_from_nothing, "has a generic dtype, but no argument fixes it in every call"),
        (no_common_dtype, "Float and Int and Num have no dtype in common"),
        (index_of_floats, "Index and Extent are for integers"),
        (empty_between, "Between() bounds nothing"),
        (complex_between, "Between is for ints and floats"),
        (extent_of_nothing, "Extent(start='s') must name a required tensor argument"),
        (positive_flags, "Positive is for ints and floats"),
        (only_the_class, "Sorted is a class; write Sorted(...)"),
        (sorted_scalar, "Sorted looks along the last dimension, and the annotation names none"),
        (sorted_anything, "Sorted looks along the last dimension, and the annotation names none"),
        (sorted_words, "Sorted is for ints and floats"),
        (total_of_floats, "Total is for integers"),
        (total_of_what, "expected of='sizes' or of='shapes'"),
        (shapes_in_a_line, "Total(of='shapes') needs a tensor of 2 dimensions or more"),
        (total_of_nothing, "reads 'M', which no argument binds"),
        (starts_of_itself, "Starts(of='x') names the argument itself"),
        (starts_of_others, "Starts(of='y') needs an argument of the same type, or with one"),
        (starts_of_absent, "Starts(of='y') must name a required tensor argument"),
        (list_of_sorted, "Sorted looks along the last dimension, and the annotation names none"),
        (numbers, "Literal[1, 2]: a Literal lists strings here; for numbers"),
        (none_in_literal, 'write Literal["a", "b"] | None'),
        (other_default, 'the default \'c\' is not Literal["a", "b"]'),
        (
            a_generator,
            "Generator cannot be an argument: declare opsmith.Philox, the seed and offset",
        ),
        (optional_list_binds, "which only 'xs' binds, and that may be absent"),
        (wrong_default, "parameter 'k: int': the default 'a' is not int"),
        (none_default, "the default None needs 'int | None'"),
        (short_default, "the default (1,) has 1 elements, expected 2"),
        (
            texts_default,
            "PyTorch reads no empty list of strings as a default; leave the default",
        ),
        (no_result, "the return annotation is missing"),
        (does_nothing, "returns nothing and mutates nothing"),
        (scalar_result, 'return a 0-dimensional one, as in Float[Tensor, ""]'),
        (optional_result, 'a size that an argument makes 0, as in Float[Tensor, "N*{wanted}"]'),
        (dim_named_like_parameter, "'x' is both a parameter and a dimension"),
        (named_out, "parameter 'out' has the name that the result has in a kernel"),
        (unsized_result, "'_' says no size"),
        (reads_variadic, "'s' is one dimension here and any number of dimensions ('*s') elsewhere"),
        (fixed_tensors, "write a parameter for each of a fixed number of tensors"),
        (undefined_name, "does not evaluate: name 'Undefined' is not defined"),
        (misspelt_dtype, "evaluate: 'Flaot' is no dtype of jaxtyping; did you mean Float? (name"),
        (not_imported, "evaluate: it is not imported: from jaxtyping import UInt4 (name"),
        (comma_in_a_shape, "a shape is one text, its axes separated by spaces, as in Float[Tensor"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_a_mistake_is_refused_with_what_would_be_right(function: Any, said: str) -> None:
    message = _refused(function)
    assert message.startswith("ns::f: ")
    assert said in message


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"mutates_args": "x"}, "mutates_args='x' is a string; write mutates_args=(\"x\",)"),
        ({"mutates_args": ("y",)}, "mutates_args names 'y', which is not a parameter"),
        ({"mutates_args": ("k",)}, "but only tensors and lists of tensors can be mutated"),
        ({"data_dependent": ("N",)}, "data_dependent names 'N', but 'x' binds it"),
        ({"data_dependent": ("K",)}, "data_dependent names 'K', which is a dimension of no result"),
        ({"parallel_dims": ("K",)}, "parallel_dims names 'K', which no argument binds"),
        ({"parallel_dims": ("M",)}, "parallel_dims names 'M', which no result has"),
    ],
)
def test_a_wrong_claim_is_refused(options: dict[str, Any], said: str) -> None:
    def f(x: Float[Tensor, "N M"], k: int) -> Float[Tensor, "N"]: ...  # type: ignore[empty-body]

    assert said in _refused(f, **options)


class Scales(jaxtyping.AbstractDtype):
    dtypes = ("float8_e8m0fnu", "float4_e2m1fn_x2")


def test_a_dtype_that_operators_do_not_carry_is_named_with_what_does() -> None:
    def f(x: Scales[Tensor, "N"]) -> Tensor: ...  # type: ignore[empty-body]

    assert _refused(f).startswith(
        "ns::f: parameter 'x: Scales[Tensor, \"N\"]': Scales has no dtype that operators carry: "
        "float8_e8m0fnu, float4_e2m1fn_x2. Declare UInt8, and pass x.view(torch.uint8); there are "
    )


def test_one_condition_may_be_written_as_a_text() -> None:
    def f(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]: ...  # type: ignore[empty-body]

    assert declare(f, where="N > 0") == declare(f, where=("N > 0",))


def test_results_have_other_names_where_a_parameter_is_called_out() -> None:
    def one(x: Float[Tensor, "N"], out: Float[Tensor, "N"]) -> Float[Tensor, "N"]: ...  # type: ignore[empty-body]
    def two(out1: Float[Tensor, "N"]) -> tuple[Float[Tensor, "N"], Float[Tensor, "N"]]: ...  # type: ignore[empty-body]

    def names(function: Any, **options: Any) -> list[str]:
        return [result.name for result in signature_of(function, "ns::f", **options).results]

    assert names(one, mutates_args=("out",)) == ["result"]
    assert names(two) == ["result0", "result1"]
