import re
from fractions import Fraction

import numpy
import pytest
import torch
from comparing import outcome, random, total
from jaxtyping import Float, Float8e4m3fn, Float32, Int64
from torch import Tensor

import opsmith
from opsmith.checks.numerics.comparison import compare, difference, same_bits
from opsmith.checks.numerics.oracle import RefusedError, expected_of
from opsmith.checks.numerics.tolerances import tolerance

HALF_TO_DOUBLE = (torch.float16, torch.bfloat16, torch.float32, torch.float64)


@opsmith.op("comparison::exponential")
def exponential(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    return x.exp()


@opsmith.op("comparison::scatter")
def scatter(x: Float[Tensor, "P"], cells: Int64[Tensor, "P"]) -> Float[Tensor, "10"]:
    return x.new_zeros(10).index_add(0, cells, x)


@opsmith.op("comparison::steps")
def steps(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    return torch.floor(x / 0.1) * 0.1


@opsmith.op("comparison::single")
def single(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
    assert x.dtype == torch.float32
    return x.clone()


@opsmith.op("comparison::ranks")
def ranks(x: Float[Tensor, "N"]) -> Int64[Tensor, "N"]:
    return x.argsort()


@opsmith.op("comparison::nearest")
def nearest(a: Float[Tensor, "N D"], b: Float[Tensor, "M D"]) -> Int64[Tensor, "N"]:
    return (a[:, None] - b[None]).square().sum(-1).argmin(-1)


@opsmith.op("comparison::long_ones", data_dependent=("K",))
def long_ones(x: Float[Tensor, "N D"]) -> Int64[Tensor, "K"]:
    return (x.square().sum(-1) > 4).nonzero()[:, 0]


@opsmith.op("comparison::thirds")
def thirds(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    return x * (torch.arange(1, x.shape[0] + 1, dtype=x.dtype) * (1 / 3) - 1)


@opsmith.op("comparison::grid")
def grid(n: int) -> Float32[Tensor, "{n}"]:
    return torch.linspace(0, 1, n + 1).diff()


@opsmith.op("comparison::placed")
def placed(x: Float[Tensor, "N"]) -> Float[Tensor, "2"]:
    out = torch.zeros(2)
    out[1] = x.sum()
    return out


@pytest.mark.parametrize("dtype", HALF_TO_DOUBLE)
@pytest.mark.parametrize("terms", [1, 7, 100, 1500])
def test_a_naive_sum_of_random_signs_is_within_its_tolerance(dtype, terms):
    x = random(8, terms, dtype=dtype)
    naive = torch.zeros(8, dtype=dtype)
    for k in range(terms):
        naive += x[:, k]
    assert outcome(total, naive, x=x).problem is None


@pytest.mark.parametrize(
    ("dtype", "terms"),
    [(torch.float16, 10), (torch.bfloat16, 4), (torch.float32, 4000), (torch.float64, 4000)],
)
def test_a_sum_that_leaves_one_term_out_is_not(dtype, terms):
    x = random(8, terms, dtype=dtype)
    found = outcome(total, x[:, 1:].double().sum(-1).to(dtype), x=x)
    assert found.problem is not None
    assert found.error > 1


def test_the_tolerance_of_small_values_does_not_follow_from_large_ones():
    x = torch.tensor([-10.0, 10.0])
    result = x.exp()
    assert outcome(exponential, result, x=x).problem is None
    result[0] *= 1 + 1e-4
    problem = outcome(exponential, result, x=x).problem
    assert problem is not None
    assert problem.startswith("the result[0] is 4.54")
    assert problem.endswith("(float32); 1 of 2 elements are wrong")


def test_an_element_of_many_terms_has_a_wider_tolerance_than_its_neighbour():
    cells = torch.zeros(1001, dtype=torch.int64)
    cells[-1] = 5
    x = torch.ones(1001)
    truth = expected_of(scatter, {"x": x, "cells": cells})
    assert truth.terms[0] is not None
    assert truth.terms[0][0] > 200
    assert truth.terms[0][5] == 1
    allowed = tolerance(truth, 0, torch.float32) / truth.values[0].clamp_min(1)
    assert allowed[0] > 5 * allowed[5]


def test_where_the_reference_jumps_both_sides_are_right():
    x = torch.tensor([0.3, 0.7, 0.55])
    in_float = torch.floor(x / 0.1) * 0.1
    assert bool((in_float.double() - steps.reference(x.double())).abs().max() > 0.05)
    assert outcome(steps, in_float, x=x).problem is None
    assert outcome(steps, in_float + 0.1, x=x).problem is not None


def test_nan_and_infinity_are_equal_to_themselves_only():
    x = torch.tensor([float("nan"), float("inf"), -float("inf"), 1.0])
    right = x.exp()
    assert outcome(exponential, right, x=x).error < 1
    for position, wrong in ((0, 0.0), (1, float("nan")), (2, float("inf")), (3, float("nan"))):
        result = right.clone()
        result[position] = wrong
        found = outcome(exponential, result, x=x)
        assert found.error == float("inf")
        assert f"the result[{position}]" in (found.problem or "")


def test_infinity_is_right_where_the_dtype_ends():
    x = torch.tensor([12.0], dtype=torch.float16)
    assert outcome(exponential, x.exp(), x=x).problem is None
    assert outcome(exponential, torch.full_like(x, 60000.0), x=x).problem is not None


def test_a_subnormal_may_be_lost():
    x = torch.tensor([-17.2], dtype=torch.float16)
    assert outcome(exponential, torch.zeros_like(x), x=x).problem is None


def test_a_reference_that_insists_on_a_dtype_is_believed_to_that_dtype():
    x = random(5)
    truth = expected_of(single, {"x": x})
    assert not truth.exact
    assert compare([x * (1 + 1e-7)], truth).problem is None
    assert compare([x * (1 + 1e-4)], truth).problem is not None


def test_integers_are_compared_exactly():
    x = random(6)
    assert outcome(ranks, x.argsort(), x=x).problem is None
    assert outcome(ranks, x.argsort(descending=True), x=x).error == float("inf")


def squared_distances(a, b):
    # As kernels do: added up in single precision, rounded once.
    return (a.float()[:, None] - b.float()[None]).square().sum(-1).to(a.dtype).float()


@pytest.mark.parametrize("seed", [16, 40, 61, 79, 89])  # neither in float64 nor the reference
def test_which_of_two_is_nearer_may_be_decided_by_rounding(seed):
    a, b = (
        random(31, 4, dtype=torch.bfloat16, seed=seed),
        random(9, 4, dtype=torch.bfloat16, seed=99),
    )
    assert outcome(nearest, squared_distances(a, b).argmin(-1), a=a, b=b).problem is None


def test_a_neighbour_that_rounding_makes_no_nearest_one_is_wrong():
    a, b = random(31, 4), random(9, 4, seed=1)
    found = squared_distances(a, b).argmin(-1)
    found[7] = squared_distances(a, b).argsort(-1)[7, 1]
    assert "1 of 31 elements are wrong" in outcome(nearest, found, a=a, b=b).problem
    # Of distances that are exact in the dtype, each of two equal ones is not right.
    a, b = torch.zeros(5, 2, dtype=torch.bfloat16), torch.ones(3, 2, dtype=torch.bfloat16)
    last = torch.full((5,), 2)
    assert "expected 0" in outcome(nearest, last, a=a, b=b).problem


def test_how_many_pass_a_threshold_may_be_decided_by_rounding():
    # 4.015625, of which bfloat16 makes 4.
    x = torch.tensor([[2.0, 0.125], [3.0, 0.0], [0.5, 0.5]], dtype=torch.bfloat16)
    assert outcome(long_ones, torch.tensor([0, 1]), x=x).problem is None
    assert outcome(long_ones, torch.tensor([1]), x=x).problem is None
    assert "shape (0,)" in outcome(long_ones, torch.tensor([], dtype=torch.int64), x=x).problem
    assert "expected" in outcome(long_ones, torch.tensor([2]), x=x).problem


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_kernel_may_round_the_numbers_of_the_reference(dtype):
    # As processors do that multiply and add in one step: three thirds are not 1 to them.
    x = random(4, dtype=dtype)
    third = Fraction(torch.tensor(1 / 3, dtype=dtype).item())
    weights = torch.tensor([float(n * third - 1) for n in range(1, 5)], dtype=dtype)
    assert weights[2] != 0
    assert outcome(thirds, x * weights, x=x).problem is None
    off = torch.tensor([0.0, 0.0, 1e-4, 0.0], dtype=dtype)
    assert "1 of 4 elements are wrong" in outcome(thirds, x * (weights + off), x=x).problem


def test_rounding_may_decide_between_infinity_and_nan():
    x = torch.tensor([1.0, 1.0, torch.inf, torch.inf])
    right = thirds(x)
    assert right[2].isnan()
    assert right[3].isinf()
    for value in (torch.inf, -torch.inf):
        assert (
            outcome(thirds, torch.cat([right[:2], torch.tensor([value, torch.inf])]), x=x).problem
            is None
        )
    for wrong in ([1.0, torch.inf], [torch.nan, torch.nan], [torch.nan, -torch.inf]):
        given = torch.cat([right[:2], torch.tensor(wrong)])
        assert "1 of 4 elements are wrong" in outcome(thirds, given, x=x).problem


def test_a_table_may_be_more_exact_than_the_reference_makes_it():
    exact = torch.full((100,), 0.01)
    assert not torch.equal(grid(100), exact)
    assert outcome(grid, exact, n=100).problem is None
    assert outcome(grid, grid(100), n=100).problem is None
    assert "100 of 100 elements" in outcome(grid, exact * (1 + 1e-4), n=100).problem


def test_what_the_reference_makes_without_a_dtype_is_double_in_what_is_right():
    x = random(100)
    truth = expected_of(placed, {"x": x})
    assert truth.values[0].tolist() == [0, x.double().sum().item()]
    assert torch.get_default_dtype() is torch.float32
    # In the case's own dtypes it is what the author wrote, which is right as well.
    x = random(100, dtype=torch.float64)
    assert outcome(placed, torch.stack([x[0] * 0, x.sum()]), x=x).problem is None
    assert outcome(placed, placed.reference(x).double(), x=x).problem is None


def test_shapes_and_numbers_of_results_are_compared():
    x = random(2, 3)
    truth = expected_of(total, {"x": x})
    assert compare([x.sum(0)], truth).problem == "the result has shape (3,), expected (2,)"
    assert compare([], truth).problem == "gave 0 tensors, expected 1"


def test_what_the_reference_refuses_is_no_case():
    with pytest.raises(RefusedError, match="IndexError"):
        expected_of(scatter, {"x": random(2), "cells": torch.tensor([0, 10])})


def test_bits_tell_zero_from_minus_zero():
    zero = torch.zeros(2)
    assert same_bits([zero], [zero.clone()])
    assert not same_bits([zero], [-zero])
    assert not same_bits([zero], [zero.double()])


def test_bits_of_views_are_those_of_their_elements():
    z = torch.tensor([1 + 2j, 3 - 1j])
    assert same_bits([z.conj()], [z.conj().resolve_conj()])
    assert not same_bits([z.conj()], [z])
    one = torch.arange(6.0).as_strided((1,), (5,))
    assert same_bits([one], [torch.zeros(1)])


def test_a_difference_says_where_it_is_largest():
    first = torch.tensor([[1.0, 2.0], [3.0, 0.0]])
    second = first.clone()
    second[1, 0] += 2**-21
    second[1, 1] = -0.0
    assert difference([first], [second], ["the result"]) == (
        "the result[1, 0] is 3 and 3.0000005, 4.8e-07 apart (float32); 2 of 4 elements differ"
    )
    assert difference([first], [first.clone()], ["the result"]) == ""
    assert "float32 (2, 2) and float64 (2, 2)" in difference([first], [first.double()], ["it"])


def test_numbers_are_shown_with_the_digits_that_tell_them_apart():
    x = torch.tensor([0.5], dtype=torch.float64)
    problem = outcome(exponential, x.exp() * (1 + 1e-14), x=x).problem
    found = re.match(r"the result\[0\] is (\S+), expected (\S+) ± ", problem or "")
    assert found is not None
    assert found[1] != found[2]
    assert found[1][:-2] == found[2][:-2] == "1.648721270700"


@opsmith.op("comparison::middle")
def middle(x: Float[Tensor, "N C"]) -> Float[Tensor, "N"]:
    # As PyTorch's median was: right for contiguous memory only.
    return x.as_strided(x.shape, (x.shape[1], 1), x.storage_offset()).median(1).values


def test_what_is_right_does_not_depend_on_the_layout():
    x = random(5, 3).t()
    assert not x.is_contiguous()
    assert outcome(middle, x.contiguous().median(1).values, x=x).problem is None


@opsmith.op("comparison::normed_slope")
def normed_slope(g: Float[Tensor, "N C"], x: Float[Tensor, "N C"]) -> Float[Tensor, "N C"]:
    inverse = torch.rsqrt((x * x).mean(-1, keepdim=True))
    return inverse * g - inverse**3 * (g * x).mean(-1, keepdim=True) * x


@pytest.mark.parametrize("dtype", HALF_TO_DOUBLE)
def test_where_terms_cancel_the_tolerance_follows_from_the_terms(dtype):
    # With one column the right result is zero: only the rounding of two equal terms is left.
    g, x = (random(200, 1, seed=seed).to(dtype) for seed in (1, 2))
    truth = expected_of(normed_slope, {"g": g, "x": x})
    terms = (g / x).abs().double()
    off = torch.finfo(dtype).eps * terms
    assert bool((truth.values[0].abs() < 1e-9 * terms).all())
    assert compare([(truth.values[0] + off).to(dtype)], truth).problem is None
    assert compare([(truth.values[0] + 100 * off).to(dtype)], truth).problem is not None


@pytest.mark.parametrize("size", [1e-100, 1e100])
def test_where_numbers_fit_no_other_dtype_the_tolerance_follows_from_the_terms(size):
    # Rounding is seen in single precision, which has no room for these.
    x = random(200, 1, dtype=torch.float64, seed=2)
    g = size * random(200, 1, dtype=torch.float64, seed=1)
    truth = expected_of(normed_slope, {"g": g, "x": x})
    terms = (g / x).abs()
    off = torch.finfo(torch.float64).eps * terms
    assert compare([truth.values[0] + off], truth).problem is None
    assert compare([truth.values[0] + 100 * off], truth).problem is not None


@opsmith.op("comparison::layer_norm")
def layer_norm(x: Float[Tensor, "N C"]) -> Float[Tensor, "N C"]:
    return torch.nn.functional.layer_norm(x, x.shape[-1:])


def test_a_formula_behind_one_operator_is_taken_apart():
    # Of equal numbers every deviation is rounding of the mean, 316 times enlarged.
    x = random(50, 1).expand(50, 16)
    mean = torch.zeros(50, 1)
    for k in range(16):
        mean += x[:, k : k + 1]
    result = (x - mean / 16) * 100000**0.5
    truth = expected_of(layer_norm, {"x": x})
    assert bool((result.abs() > 1e-6).any())
    assert compare([result], truth).problem is None
    assert compare([result + 1e-3 * x.abs() + 1e-3], truth).problem is not None


@opsmith.op("comparison::variance")
def variance(x: Float[Tensor, "N C"]) -> Float[Tensor, "N"]:
    return x.var(-1, correction=0)


def test_a_variance_of_equal_numbers_may_be_the_square_of_the_means_rounding():
    # The derivative is zero there, so the size of the terms says nothing.
    x = random(50, 1).expand(50, 16)
    mean = torch.zeros(50, 1)
    for k in range(16):
        mean += x[:, k : k + 1]
    result = (x - mean / 16).square().mean(-1)
    truth = expected_of(variance, {"x": x})
    assert bool((result > 0).any())
    assert compare([result], truth).problem is None
    # As the mean of squares less the square of the mean has it.
    assert compare([result + torch.finfo(x.dtype).eps * x[:, 0] ** 2], truth).problem is not None


@opsmith.op("comparison::rounded")
def rounded(x: Float32[Tensor, "N"]) -> Float8e4m3fn[Tensor, "N"]:
    return x.to(torch.float8_e4m3fn)


def test_float8_may_be_one_step_off_and_no_more():
    x = torch.tensor([1.0, -3.0, 0.01, 200.0])
    truth = expected_of(rounded, {"x": x})
    right = rounded(x)
    assert compare([right], truth).error == 0
    for steps, problem in ((1, False), (2, True), (8, True)):
        bits = right.view(torch.uint8).clone()
        bits[1] += steps
        found = compare([bits.view(torch.float8_e4m3fn)], truth)
        assert (found.problem is not None) is problem, steps
    nan = torch.tensor([float("nan")] * 4).to(torch.float8_e4m3fn)
    assert compare([nan], truth).problem is not None


@opsmith.op("comparison::passing", data_dependent=("K",))
def passing(x: Float[Tensor, "N"]) -> Float[Tensor, "K"]:
    return x[x * 3 > 1]


class TestSizesThatTheDataDecides:
    """A third in float32, times three, is 1 in float32 and more in float64."""

    x = torch.tensor([1 / 3, 0.5, 0.0])

    def test_what_the_reference_keeps_in_the_kernels_dtype_is_right(self):
        truth = expected_of(passing, {"x": self.x})
        assert truth.values[0].shape == (2,)
        assert compare([self.x[1:2]], truth).problem is None
        assert compare([self.x[:2]], truth).problem is None

    @pytest.mark.parametrize("wrong", [[0.0], [0.5001], [1 / 3, 0.5, 0.0], []])
    def test_anything_else_is_wrong(self, wrong):
        truth = expected_of(passing, {"x": self.x})
        assert compare([torch.tensor(wrong)], truth).problem is not None


@opsmith.op("comparison::normed")
def normed(x: Float[Tensor, "N C"]) -> Float[Tensor, "N C"]:
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6)


def test_equal_terms_are_granted_the_roundings_of_one_order():
    x = torch.full((1, 300), 1.8328348398208618)
    squares = (x * x).numpy()
    total = torch.from_numpy(numpy.add.accumulate(squares, axis=1)[:, -1:])
    given = x * torch.rsqrt(total / 300 + 1e-6)
    truth = expected_of(normed, {"x": x})
    found = compare([given], truth)
    assert found.problem is None
    assert found.error < 0.5, "no matter what is drawn"
    # No order gives these.
    assert compare([given * (1 + 2e-5)], truth).problem is not None
    assert compare([given * (1 - 2e-5)], truth).problem is not None


@opsmith.op("comparison::row_sums")
def row_sums(x: Float[Tensor, "N C"]) -> Float[Tensor, "N"]:
    return x.sum(1)


def test_an_element_that_exceeds_its_tolerance_is_measured_with_more_probes() -> None:
    """Few probes give a tenth of the terms of a few among thousands of equal sums."""
    x = torch.where(random(4000, 33) < 0, -1.0, 1.0).double()
    truth = expected_of(row_sums, {"x": x})
    (terms,) = truth.terms
    assert terms is not None
    least = int(terms.argmin())
    assert terms[least] < 5
    unit = torch.finfo(torch.float64).eps / 2
    near, far = (x.sum(1) for _ in range(2))
    near[least] += unit * 120  # the tolerance of 33 equal terms is 264 units, but for their sum
    far[least] += unit * 800
    assert compare([near], truth).problem is None
    assert "the result[" in str(compare([far], truth).problem)


@opsmith.op("comparison::there_and_back")
def there_and_back(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    return (x + 1e6) - 1e6


def test_the_allowed_error_that_is_told_has_what_the_reference_itself_loses() -> None:
    x = random(64)
    truth = expected_of(there_and_back, {"x": x})
    assert compare([there_and_back.reference(x)], truth).problem is None
    compared = compare([x + 1], truth)
    allowed = re.search(r"± (\S+) ", str(compared.problem))
    assert allowed is not None
    assert 0.9 < compared.error * float(allowed[1]) < 1.1
    assert float(allowed[1]) > 0.05


def test_in_double_precision_the_right_value_is_rounded_too() -> None:
    x = random(1000, dtype=torch.float64).unsqueeze(0)
    for dtype, units in ((torch.float32, 1), (torch.float64, 2)):
        truth = expected_of(total, {"x": x.to(dtype)})
        eps = torch.finfo(dtype).eps / 2
        size = truth.values[0].abs() + truth.spread[0]
        allowed = 4 * eps * (truth.values[0].abs() + truth.terms[0].sqrt() * size)
        torch.testing.assert_close(tolerance(truth, 0, dtype), units * allowed, rtol=1e-6, atol=0)


@opsmith.op("comparison::second")
def second(x: Float[Tensor, "2"]) -> Float[Tensor, ""]:
    return x[0] + x[1] - x[0]


def test_a_term_that_double_precision_loses_beside_another_is_no_fault_of_a_kernel() -> None:
    x = torch.tensor([2.0**60, -0.0029])
    assert second.reference(x.double()) == 0
    assert outcome(second, x[1], x=x).problem is None
    assert outcome(second, x[0], x=x).problem is not None


@opsmith.op("comparison::filtered")
def filtered(x: Float[Tensor, "N K"], by: Float[Tensor, "K"]) -> Float[Tensor, "N"]:
    return torch.nn.functional.conv1d(x[:, None], by[None, None])[:, 0, 0]


def test_a_sum_that_few_probes_take_for_one_term_may_be_nan_where_its_terms_overflow() -> None:
    x = torch.tensor([[-2.0e38, -2.0e38, -2.0e38, 1.0e38]])
    several = expected_of(filtered, {"x": x, "by": torch.full((4,), 3.0)})
    alone = expected_of(exponential, {"x": torch.tensor([100.0])})
    for truth in several, alone:
        truth.terms = [torch.ones(1, dtype=torch.float64)]  # as few probes may measure
    assert compare([torch.tensor([torch.nan])], several).problem is None
    assert compare([torch.tensor([torch.nan])], alone).problem is not None
