"""Constraints on values are sampled from, and breaking one is tried."""

from typing import Annotated, Any, Literal

import pytest
import torch
from jaxtyping import Float, Int32, Int64
from torch import Tensor

import opsmith
from opsmith import Between, Index, Positive, Sorted, Starts, Total, checks
from opsmith.checks.cases.subject import subjects_of
from opsmith.checks.cases.values import fill
from opsmith.checks.trial.trial import Settings, Trial
from opsmith.signature import binding


@opsmith.op("constraints::all_of_them")
def all_of_them(
    x: Annotated[Float[Tensor, "N"], Sorted()],
    offsets: Annotated[Int32[Tensor, "B+1"], Sorted(first=0, last="N", strict=True)],
    rows: Annotated[Int64[Tensor, "B 3"], Index("N+1"), Sorted()],
    starts: Annotated[Int64[Tensor, "B"], Starts(of="lengths")],
    lengths: Annotated[Int64[Tensor, "B"], Between(1, "N"), Total("N")],
    shapes: Annotated[Int64[Tensor, "L 3"], Total("N", of="shapes")],
    scale: Annotated[Float[Tensor, "L"], Positive()],
    window: Annotated[tuple[int, int], Sorted(last="N")],
) -> Float[Tensor, "N"]:
    return x * 2


def sampled(examples: int = 100) -> list[dict[str, Any]]:
    found: list[Any] = []
    trial = Trial(subjects_of(all_of_them)[0], "sampling", Settings(0, examples))
    trial.each(found.append, dtypes=("float32",))
    return [case.make() for case in found]


def test_every_sample_satisfies_the_constraints() -> None:
    cases = sampled()
    assert len(cases) == 100
    for case in cases:
        # Calling compares the values with the declaration.
        all_of_them(**case)


@pytest.mark.slow
def test_samples_are_as_varied_as_the_constraints_allow() -> None:
    cases = sampled(200)
    assert len({case["x"].numel() for case in cases}) > 5
    parted = [case["lengths"].tolist() for case in cases if len(case["lengths"]) > 1]
    assert any(len(set(lengths)) > 1 for lengths in parted)
    assert any(
        shape.prod() > 3 and shape.max() < shape.prod() for c in cases for shape in c["shapes"]
    )
    assert any((case["shapes"] == 0).any() for case in cases)


WORDS = {
    "x": ["with values out of order"],
    "offsets": [
        "with -1 as its first value",
        "as its last value",
        "with values out of order",
        "with a value twice",
    ],
    "rows": ["with values out of order", "with the value -1"],
    "starts": ["that starts later", "that starts earlier"],
    "lengths": ["that adds up to more", "that adds up to less", "with the value 0"],
    "shapes": ["that adds up to more", "that adds up to less", "with the value -1"],
    "scale": ["with the value 0"],
    "window": ["as its last value", "with values out of order"],
}


def test_the_refusal_check_breaks_every_constraint(tried: list[str]) -> None:
    report = checks.run(all_of_them, select=["validation"], isolate=False)
    assert [row.status for row in report.rows] == ["passed"], report.explain()
    for name, words in WORDS.items():
        for word in words:
            assert any(what.startswith(f"'{name}' ") and word in what for what in tried), word


@pytest.mark.slow(cases=2)
@pytest.mark.parametrize("unchecked", ["order", "sum", "starts"])
def test_a_constraint_that_is_not_enforced_is_found(
    monkeypatch: pytest.MonkeyPatch, unchecked: str
) -> None:
    from opsmith.operators.core import value_checks

    monkeypatch.setattr(value_checks._Values, unchecked, lambda self, constraint: None)
    report = checks.run(all_of_them, select=["validation"], isolate=False)
    assert [row.status for row in report.rows] == ["failed"]
    assert "accepted, expected an error" in report.explain()


def test_a_dimension_that_is_looked_along_is_not_folded_by_vmap() -> None:
    @opsmith.op("constraints::sorted_rows", parallel_dims=("N",))
    def sorted_rows(x: Annotated[Float[Tensor, "N"], Sorted()]) -> Float[Tensor, "N"]:
        return x * 2

    rows = torch.tensor([[1.0, 5.0], [2.0, 3.0]])
    assert torch.equal(torch.vmap(sorted_rows)(rows), rows * 2)


@pytest.mark.parametrize(
    ("unchecked", "accepted"),
    [("choice", "how='summax?': accepted"), ("named", "'xs'[1] with "), ("some", "'xs' without")],
)
def test_a_choice_or_a_list_that_is_not_enforced_is_found(
    monkeypatch: pytest.MonkeyPatch, unchecked: str, accepted: str
) -> None:
    # Each time another one: an operator remembers which arguments fitted.
    @opsmith.op(f"constraints::without_{unchecked}")
    def chosen(
        xs: list[Float[Tensor, "N C"]], how: Literal["sum", "max"] = "sum"
    ) -> Float[Tensor, "N C"]:
        stacked = torch.stack(xs)
        return stacked.sum(0) if how == "sum" else stacked.amax(0)

    report = checks.run(chosen, select=["validation"], isolate=False)
    assert [row.status for row in report.rows] == ["passed"], report.explain()
    original = getattr(binding._Binder, unchecked)

    def lenient(self: Any, *arguments: Any) -> None:
        before, self.check = self.check, lambda condition, message: None
        original(self, *arguments)
        self.check = before

    monkeypatch.setattr(binding._Binder, unchecked, lenient)
    report = checks.run(chosen, select=["validation"], isolate=False)
    assert [row.status for row in report.rows] == ["failed"]
    assert accepted in report.explain()


@opsmith.op("constraints::shares")
def shares(
    x: Annotated[Float[Tensor, "N"], Between(0.01, 0.3)],
    y: Annotated[Float[Tensor, "N"], Between(0.02, 0.1)],
) -> Float[Tensor, "N"]:
    return x * y


@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32", "float64"])
@pytest.mark.parametrize(("name", "low", "high"), [("x", 0.01, 0.3), ("y", 0.02, 0.1)])
def test_the_ends_of_a_range_are_numbers_of_the_dtype_within_it(dtype, name, low, high):
    parameter = shares.signature.by_name[name]
    drawn = fill(parameter, (200,), dtype, 0, {}, {}, "ends of the range").double()
    assert low <= drawn.min() < low * 1.02
    assert high * 0.98 < drawn.max() <= high


@opsmith.op("constraints::tokens")
def tokens(
    ids: Annotated[Int64[Tensor, "N"], Between(-1, 1000)],
    x: Annotated[Float[Tensor, "N"], Between(-1e6, 1e6)],
) -> Float[Tensor, "N"]:
    return x * ids


def test_zero_within_a_range_of_integers_stands_beside_its_ends():
    drawn = fill(tokens.signature.by_name["ids"], (200,), "int64", 0, {}, {}, "ends of the range")
    assert {-1, 0, 1000} <= {*drawn.tolist()}


@pytest.mark.parametrize("kind", ["tiny", "denormal"])
def test_a_range_with_zero_in_it_has_numbers_whose_squares_are_zero(kind):
    drawn = fill(tokens.signature.by_name["x"], (50,), "float32", 0, {}, {}, kind)
    assert bool((drawn != 0).all())
    assert bool((drawn * drawn < torch.finfo(torch.float32).tiny).all())
