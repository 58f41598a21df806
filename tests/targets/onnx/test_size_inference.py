"""What is known of results where only some sizes of a call are."""

from __future__ import annotations

from jaxtyping import Float
from torch import Tensor

from opsmith.signature.declare import signature_of
from opsmith.signature.sizes.shapes import parse
from opsmith.targets.onnx.size_inference import infer, result_sizes


def joined(
    x: Float[Tensor, "*b N C"], y: Float[Tensor, "M"], many: list[Float[Tensor, "K 2"]], k: int
) -> tuple[Float[Tensor, "*b N+M {k}"], Float[Tensor, "C K 7"]]: ...


SIGNATURE = signature_of(joined, "inference::joined")


def shapes(x, y, many, k=3):
    arguments = {"x": x, "y": y, "many": many, "k": k}
    known = infer(SIGNATURE, arguments, lambda sizes: sizes)
    return [result_sizes(SIGNATURE, result, known, arguments) for result in SIGNATURE.results]


def test_axes_after_a_variadic_one_count_from_the_end() -> None:
    assert [axis for axis, _ in parse("*b N C").axes()] == [0, -2, -1]
    assert [axis for axis, _ in parse("A *b C").axes()] == [0, 1, -1]
    assert [axis for axis, _ in parse("A B").axes()] == [0, 1]


def test_every_size_follows_from_known_ones() -> None:
    assert shapes((5, 6, 10, 4), (2,), [(8, 2)]) == [[5, 6, 12, 3], [4, 8, 7]]


def test_a_size_stays_open_where_a_part_of_it_is() -> None:
    assert shapes((5, None, 10, None), (None,), [(8, 2)]) == [[5, None, None, 3], [None, 8, 7]]


def test_the_first_that_knows_a_size_says_it() -> None:
    assert shapes((1, 1), (2,), [None, (None, 2), (9, 2), (8, 2)])[1] == [1, 9, 7]


def test_without_the_number_of_dimensions_a_variadic_result_is_open() -> None:
    assert shapes(None, (2,), []) == [None, [None, None, 7]]
    assert shapes((1,), (2,), []) == [None, [None, None, 7]]


def attended(
    q: Float[Tensor, "S K*G D"], k: Float[Tensor, "T K D"], offsets: Float[Tensor, "R+1"], h: int
) -> Float[Tensor, "G R {h}"]: ...


def solved(q, k, offsets):
    signature = signature_of(attended, "inference::attended")
    arguments = {"q": q, "k": k, "offsets": offsets, "h": 3}
    known = infer(signature, arguments, lambda sizes: sizes)
    return result_sizes(signature, signature.results[0], known, arguments)


def test_a_size_is_solved_where_what_it_depends_on_is_known() -> None:
    assert solved((None, 6, None), (None, 2, None), (5,)) == [3, 4, 3]
    assert solved((None, 6, None), (None, None, None), (5,)) == [None, 4, 3]
    assert solved((None, None, None), (None, 2, None), (None,)) == [None, None, 3]
    assert solved((None, 6, None), (None, 0, None), (5,)) == [None, 4, 3]
