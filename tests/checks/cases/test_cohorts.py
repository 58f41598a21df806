"""What normal sampling does not reach is tried, and named."""

import re
from typing import Annotated, Literal

import pytest
import torch
from cohort_rows import declared, run
from comparing import outcome, total as added_up
from jaxtyping import Bool, Float, Float32, Int32, Int64
from torch import Tensor

import opsmith
from opsmith import Between, DeclarationError, Unspecified
from opsmith.checks.cases.boundary_values import RUNS, SMALL_BESIDE_LARGE
from opsmith.checks.cases.cohorts import arguments, sizes
from opsmith.checks.cases.values import fill
from opsmith.signature import signature_of

pytestmark = pytest.mark.slow(cases=2)


def doubled(x: Float32[Tensor, "N C"]) -> Float32[Tensor, "N C"]:
    return x * 2


def test_the_row_names_every_cohort_and_how_many_cases_it_had():
    (note,) = (n for n in run(declared(doubled, lambda x: x * 2)).notes if n.startswith("cohorts"))
    assert note.startswith("cohorts: normal 60, equal 5, ties 3, sorted 3, reversed 3, large 2")
    assert ", huge 3, tiny 3, denormal 2, zeros 3, signed zeros" in note
    assert "NaN 8, infinity 8" in note and "boundary sizes 10, odd sizes 4" in note


def lost_nan(x, y):
    """Add where nothing is NaN; the kernel of somebody for whom that never comes."""
    return torch.nan_to_num(x) + y


def test_values_for_which_results_are_unspecified_are_never_sampled():
    N = Float32[Tensor, "N"]

    def marked(x: Annotated[N, Unspecified(nan=True, inf=True)], y: N) -> N:
        return x + y

    def nan_alone(x: Annotated[N, Unspecified(nan=True)], y: N) -> N:
        return x + y

    row = run(declared(marked, lost_nan))
    assert row.status == "passed"
    assert "unspecified, so never sampled: NaN and infinity of 'x'" in row.notes
    assert "NaN 8, infinity 8" in row.notes[0]  # in y
    row = run(declared(nan_alone, lost_nan))
    assert row.status == "failed" and "inf" in row.case and "NaN" not in row.case


@pytest.mark.parametrize("last", [256, 1025, 4096])
def test_a_dimension_ignored_beyond_some_size_is_found(last):
    def kernel(x):
        out = x * 2
        out[:, last:] = 0
        return out

    row = run(declared(doubled, kernel))
    assert row.status == "failed"
    assert "smallest case: x: float32 (" in row.explain()


@pytest.mark.long  # as of a dimension
@pytest.mark.parametrize("last", [33, 65536])
@pytest.mark.parametrize("at", [0, -1])
def test_a_tensor_of_a_list_ignored_beyond_some_size_is_found_at_any_place(last, at, no_shrinking):
    def scaled(xs: list[Float32[Tensor, "?*S"]], by: list[Float32[Tensor, "?*S"]]) -> None:
        for x, factor in zip(xs, by, strict=True):
            x.mul_(factor)

    def kernel(xs, by):
        for place, (x, factor) in enumerate(zip(xs, by, strict=True)):
            end = last if place == at % len(xs) else x.numel()
            x.view(-1)[:end].mul_(factor.reshape(-1)[:end])

    row = run(declared(scaled, kernel, mutates_args=("xs",)))
    assert row.status == "failed" and f"xs[{0 if at == 0 else ''}" in row.message


def test_sizes_that_the_author_serves_are_tried():
    operator = declared(doubled, lambda x: x * 2 if x.shape != (777, 5) else x)
    assert run(operator).status == "passed"
    operator.register_sizes({"N": 777, "C": 5}, {"N": 8})
    row = run(operator)
    assert row.status == "failed" and "(777, 5)" in row.case


def test_a_size_of_several_dimensions_is_that_of_their_last_one():
    def tripled(x: Float32[Tensor, "*s C"]) -> Float32[Tensor, "*s C"]:
        return x * 3

    operator = declared(tripled, lambda x: x * 3 if 777 not in x.shape else x)
    operator.register_sizes({"s": 777, "C": 2})
    row = run(operator)
    assert row.status == "failed" and "777, 2)" in row.case


def test_served_sizes_must_name_dimensions():
    operator = declared(doubled, lambda x: x * 2)
    with pytest.raises(
        DeclarationError, match="register_sizes names the dimension 'M'; the arguments have N, C"
    ):
        operator.register_sizes({"M": 4})
    with pytest.raises(DeclarationError, match="gives N the size -1, expected an int that is not"):
        operator.register_sizes({"N": -1})
    assert operator.sizes == []


def rectified(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
    return torch.relu(x)


def test_a_kernel_that_swallows_nan_is_found():
    row = run(declared(rectified, lambda x: torch.where(x > 0, x, 0.0)))
    assert row.status == "failed" and "expected nan" in row.message


def kept(x: Float32[Tensor, "N"], keep: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
    return x * (keep > 0)


def test_a_kernel_may_leave_out_what_the_reference_multiplies_by_zero():
    assert run(declared(kept, lambda x, keep: torch.where(keep > 0, x, 0.0))).status == "passed"
    row = run(
        declared(kept, lambda x, keep: torch.where(keep > 0, x.nan_to_num(1.0, torch.inf), 0.0))
    )
    assert row.status == "failed" and "expected nan" in row.message


def inverse(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
    return (x * x).rsqrt()


def test_a_kernel_may_be_finite_where_the_reference_overflows_in_its_dtype():
    assert run(declared(inverse, lambda x: 1 / x.abs())).status == "passed"
    assert run(declared(inverse, lambda x: (x * x).rsqrt())).status == "passed"


def softmax(x: Float[Tensor, "N C"]) -> Float[Tensor, "N C"]:
    return torch.softmax(x, 1)


def test_a_softmax_that_overflows_is_found():
    row = run(declared(softmax, lambda x: x.exp() / x.exp().sum(1, keepdim=True)))
    assert row.status == "failed" and "is nan" in row.message


def halved(x: Int32[Tensor, "N"]) -> Int32[Tensor, "N"]:
    return x // 2


def test_integers_at_the_ends_of_their_range_are_tried():
    def kernel(x):
        return torch.where(x == torch.iinfo(torch.int32).max, 0, x // 2)

    row = run(declared(halved, kernel))
    assert row.status == "failed"


def counted(x: Int64[Tensor, "N"]) -> Int64[Tensor, ""]:
    return x.sum()


@pytest.mark.parametrize("seed", range(4, 8))
def test_integers_that_take_all_their_bits_are_tried(seed):
    # The ends alone cancel, two by two, and all of their lower bits are equal.
    row = run(declared(counted, lambda x: x.int().sum(dtype=torch.int32).long()), seed)
    assert row.status == "failed"


def gated(
    x: Annotated[Float32[Tensor, "N"], Between(0, 1)], y: Float32[Tensor, "N"]
) -> Float32[Tensor, "N"]:
    return x + y


def test_declared_ranges_hold_in_every_cohort():
    def kernel(x, y):
        assert not x.numel() or (x.min() >= 0 and x.max() <= 1)
        return x + y

    assert run(declared(gated, kernel)).status == "passed"


def test_the_end_of_a_declared_range_is_tried():
    row = run(declared(gated, lambda x, y: torch.where(x == 1, 0, x) + y))
    assert row.status == "failed"


def test_two_arguments_that_are_the_same_tensor_are_tried():
    def added(x: Float32[Tensor, "N"], y: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
        return x + y

    row = run(declared(added, lambda x, y: x + y if x.data_ptr() != y.data_ptr() else x))
    assert row.status == "failed" and "x and y are the same tensor" in row.case


def test_arguments_that_never_have_one_shape_are_not_sampled_as_the_same_tensor():
    def scaled(
        x: Float32[Tensor, "N C"], y: Float32[Tensor, "N"], z: Float32[Tensor, "*any"]
    ) -> Float32[Tensor, "N C"]:
        return x * y[:, None]

    pairs = [c.wanted.same for c in arguments(opsmith.op("cohorts::ranks")(scaled).signature, 0)]
    assert [pair for pair in pairs if pair] == [("x", "z"), ("y", "z")]


def mirrored(x: Float32[Tensor, "N"], out: Float32[Tensor, "N"]) -> None:
    out.copy_(x.flip(0))


def one_by_one(x, out):
    for i in range(x.shape[0]):
        out[i] = x[x.shape[0] - 1 - i]


def test_what_is_read_where_the_call_writes_is_tried(monkeypatch):
    def mirroring():
        operator = opsmith.op("cohorts::mirrored", mutates_args=("out",))(mirrored)
        operator.register_kernel("cpu", one_by_one)
        return operator

    row = run(mirroring())
    assert row.status == "passed", row.explain()
    assert any("written and read 3" in note for note in row.notes)
    # Without the copy that the library makes.
    monkeypatch.setattr(
        "opsmith.operators.core.overlap.keep_apart", lambda signature: lambda given: given
    )
    row = run(mirroring())
    assert row.status == "failed"
    assert "; x and out are the same tensor" in row.case or " in one memory" in row.case


def test_every_choice_and_far_numbers_are_tried():
    def chosen(
        x: Float32[Tensor, "N"],
        how: Literal["a", "b", "c", "d", "e", "f"] = "a",
        factor: int = 1,
    ) -> Float32[Tensor, "N"]:
        return x * factor

    seen = set()

    def kernel(x, how, factor):
        seen.add(how)
        return x * ((factor + 128) % 256 - 128)

    assert run(declared(chosen, kernel)).status == "failed"

    def right(x, how, factor):
        seen.add(how)
        return x * factor

    seen.clear()
    assert run(declared(chosen, right)).status == "passed"
    assert seen == {"a", "b", "c", "d", "e", "f"}


def test_many_dimensions_and_long_lists_are_tried():
    def added(xs: list[Float32[Tensor, "*shape"]]) -> list[Float32[Tensor, "*shape"]]:
        return [x * 2 for x in xs]

    largest = {"dims": 0, "count": 0}

    def kernel(xs):
        largest["count"] = max(largest["count"], len(xs))
        largest["dims"] = max([largest["dims"], *(x.dim() for x in xs)])
        return [x * 2 for x in xs]

    assert run(declared(added, kernel)).status == "passed"
    assert largest["dims"] >= 4 and largest["count"] >= 5


def moving_sum(
    x: Float32[Tensor, "N"], window: Annotated[int, Between(1, None)]
) -> Float32[Tensor, "N"]:
    if window > max(x.shape[0], 1):
        raise ValueError("the window is wider than x")
    return torch.nn.functional.pad(x, (window - 1, 0)).unfold(0, window, 1).sum(1)


def test_integers_beyond_a_handful_are_tried_where_sizes_have_room():
    row = run(declared(moving_sum, lambda x, window: moving_sum(x, min(window, 8))))
    assert row.status == "failed"
    assert "window=9" in row.case
    assert run(declared(moving_sum, lambda x, window: moving_sum(x, window))).status == "passed"


def bounded_sum(x: Float32[Tensor, "N"], window: int) -> Float32[Tensor, "N"]:
    return torch.nn.functional.pad(x, (window - 1, 0)).unfold(0, window, 1).sum(1)


@pytest.mark.long  # test_integers_beyond_a_handful_... states most of it
@pytest.mark.parametrize("where", ["window >= 1", "window % 2 == 0 and window > 0"])
def test_integers_that_a_condition_bounds_from_below_are_tried_beyond_a_handful(where) -> None:
    conditions = tuple(where.split(" and "))

    def checked(kernel):
        return run(declared(bounded_sum, kernel, where=conditions))

    row = checked(lambda x, window: bounded_sum(x, min(window, 8)))
    assert row.status == "failed"
    assert re.search(r"window=(9|10)\b", row.case)
    assert checked(lambda x, window: bounded_sum(x, window)).status == "passed"


@pytest.mark.long  # test_integers_beyond_a_handful_... states most of it
def test_integers_that_a_condition_compares_with_a_size_are_tried_beyond_a_handful() -> None:
    def grouped(x: Float32[Tensor, "N"], groups: int) -> Float32[Tensor, "{groups}"]:
        return x.reshape(groups, -1).sum(1)

    where = ("groups > 0", "N % groups == 0")
    wrong = declared(grouped, lambda x, groups: grouped(x, groups) + (groups > 8), where=where)
    row = run(wrong)
    assert row.status == "failed"
    assert re.search(r"groups=\d\d|groups=9", row.case)


@pytest.mark.long  # test_integers_beyond_a_handful_... states most of it
def test_integers_that_decide_sizes_are_tried_beyond_a_handful():
    def repeated(x: Float32[Tensor, "N"], count: int) -> Float32[Tensor, "N {count}"]:
        return x[:, None].repeat(1, count)

    row = run(declared(repeated, lambda x, count: repeated(x, count) * (count < 60)))
    assert row.status == "failed"
    assert "count=65" in row.case


def magnitudes(x: Float[Tensor, "N K"]) -> Float[Tensor, "N"]:
    return x.float().abs().sum(1).to(x.dtype)


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("seed", range(5))
def test_the_sum_of_a_long_run_in_half_precision_is_outside_of_its_tolerance(dtype, seed):
    reduced = [
        cohort
        for cohort in sizes(signature_of(magnitudes, "cohorts::magnitudes"), seed)
        if cohort.wanted.values == RUNS and "K" in cohort.wanted.forced
    ]
    (cohort,) = (one for one in reduced if one.halves == (dtype,))
    parameter = signature_of(magnitudes, "cohorts::magnitudes").by_name["x"]
    x = fill(parameter, (2, cohort.wanted.forced["K"]), dtype, seed, {}, {}, RUNS)
    total = x.new_zeros(2)
    for column in x.unbind(1):
        total = total + column
    assert outcome(added_up, total, x=x).problem is not None
    assert outcome(added_up, x.float().sum(1).to(x.dtype), x=x).problem is None


def squares(x: Float[Tensor, "N K"]) -> Float[Tensor, "N"]:
    return (x * x).float().sum(1).to(x.dtype)


def _one_by_one(terms: Tensor) -> Tensor:
    """Add up the last dimension in the terms' own dtype."""
    total = torch.zeros_like(terms[..., 0])
    for term in terms.unbind(-1):
        total = total + term
    return total


def _in_lanes(terms: Tensor, blocks: bool) -> Tensor:
    """Add up eight partial sums in the terms' own dtype: of blocks, or of every eighth term."""
    terms = torch.nn.functional.pad(terms, (0, -terms.shape[1] % 8))
    lanes = terms.unflatten(1, (8, -1)) if blocks else terms.unflatten(1, (-1, 8)).mT
    return _one_by_one(_one_by_one(lanes))


@pytest.mark.parametrize("summed", [added_up, declared(squares, squares)], ids=["sum", "squares"])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_partial_sums_in_half_precision_are_outside_of_the_tolerance(summed, dtype):
    parameter = signature_of(magnitudes, "cohorts::magnitudes").by_name["x"]
    kind = SMALL_BESIDE_LARGE[summed is not added_up]
    x = fill(parameter, (2, 4097), dtype, 0, {}, {}, kind)
    terms = x if summed is added_up else x * x
    for wrong in (
        _one_by_one(terms),
        _in_lanes(terms, blocks=False),
        _in_lanes(terms, blocks=True),
    ):
        assert outcome(summed, wrong, x=x).problem is not None
    for right in (terms.float().sum(1), _one_by_one(terms.float()), _in_lanes(terms.float(), True)):
        assert outcome(summed, right.to(x.dtype), x=x).problem is None
    # Sums that a warp of a GPU adds up pairwise stay exact enough.
    pairwise = torch.nn.functional.pad(terms, (0, 8192 - 4097))
    while pairwise.shape[1] > 1:
        pairwise = pairwise[:, ::2] + pairwise[:, 1::2]
    assert outcome(summed, pairwise[:, 0], x=x).problem is None


@pytest.mark.parametrize("blocks", [False, True])
@pytest.mark.parametrize("seed", range(3))
def test_a_kernel_with_partial_sums_in_half_precision_is_found(blocks, seed):
    def added(x: Float[Tensor, "N K"]) -> Float[Tensor, "N"]:
        return x.sum(1)

    def kernel(x):
        return _in_lanes(x, blocks) if x.dtype.itemsize == 2 and x.shape[1] else added(x)

    row = run(declared(added, kernel), seed)
    assert row.status == "failed"
    assert "OPS-VALUE-ACCUMULATION" in str(row)


def test_no_number_beyond_a_literal_range_is_tried():
    def stretched(
        x: Float32[Tensor, "N"], k: Annotated[tuple[int, int], Between(1, 20)]
    ) -> Float32[Tensor, "N*{k[0]}+{k[1]}"]:
        return torch.nn.functional.pad(x.repeat(k[0]), (0, k[1]))

    found = arguments(signature_of(stretched, "cohorts::stretched"), 0)
    assert [c.wanted.given["k"] for c in found if c.name == "numbers"] == [[9, 9], [17, 17]]


@opsmith.op("cohorts::filtered")
def filtered(x: Float[Tensor, "N"], h: Float[Tensor, "K"]) -> Float[Tensor, "N"]:
    padded = torch.nn.functional.pad(x, (max(len(h) - 1, 0), 0))
    return padded.unfold(0, len(h), 1) @ h.flip(0) if len(x) and len(h) else torch.zeros_like(x)


@pytest.mark.parametrize("half", [False, True])
def test_a_filter_that_adds_up_in_half_precision_is_found(half):
    def filter_(x, h):
        total = torch.zeros(len(x), dtype=x.dtype if half else torch.float64)
        for k, factor in enumerate(h.tolist()[: len(x)]):
            total[k:] += factor * x[: len(x) - k]
        return total.to(x.dtype)

    filtered.register_kernel("cpu", filter_)
    row = run(filtered, 0)
    assert row.code == ("OPS-VALUE-ACCUMULATION" if half else ""), row.explain()


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        (lambda x: (x != 0) & (x.abs() < 1e-6), "OPS-VALUE-RANGE"),
        (lambda x: x.abs() == 0.5, "OPS-VALUE-HALVES"),
    ],
    ids=["small", "a half"],
)
def test_a_range_with_zero_in_it_is_tried_near_zero_and_at_halves(wrong, code):
    def bounded(x: Annotated[Float32[Tensor, "N"], Between(-3, 3)]) -> Float32[Tensor, "N"]:
        return x * 2

    row = run(declared(bounded, lambda x: torch.where(wrong(x), 7 * x, 2 * x)))
    assert row.code == code, row.explain()


@opsmith.op("cohorts::softplus")
def softplus(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    return torch.logaddexp(x, torch.zeros_like(x))


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("threshold", [20, 40])
def test_what_counts_up_to_a_larger_number_in_double_precision_is_found(threshold, seed):
    def kernel(x):
        return torch.where(x > threshold, x.double(), x.double().exp().log1p()).to(x.dtype)

    softplus.register_kernel("cpu", kernel)
    row = run(softplus, seed)
    assert row.code == ("OPS-VALUE-RANGE" if threshold == 20 else ""), row.explain()


@pytest.mark.parametrize("seed", range(3))
def test_unusual_values_meet_numbers_that_switch_the_work_on(seed):
    @opsmith.op("cohorts::kept")
    def kept(
        x: Annotated[Float32[Tensor, "B N"], Unspecified(nan=True)],
        k: Annotated[int, Between(0, "N")] = 0,
    ) -> Bool[Tensor, "B N"]:
        largest = x.argsort(dim=1, descending=True, stable=True)[:, :k]
        return torch.zeros_like(x, dtype=torch.bool).scatter(1, largest, True)

    def kernel(x, k):
        left, found = x.clone(), torch.zeros_like(x, dtype=torch.bool)
        for _ in range(k):
            largest = left.argmax(1, keepdim=True)
            found.scatter_(1, largest, True)
            left.scatter_(1, largest, -1e30)  # taken; but -inf is less
        return found

    kept.register_kernel("cpu", kernel)
    row = run(kept, seed)
    assert row.code == "OPS-VALUE-RANGE", row.explain()
