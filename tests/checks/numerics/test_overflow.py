"""Where the reference or one of its steps overflows: what is right then, and what is not."""

import pytest
import torch
from comparing import outcome, total
from jaxtyping import Float, Float32
from torch import Tensor

import opsmith
from opsmith.checks.numerics.oracle import expected_of


@opsmith.op("comparison::softmax")
def softmax(x: Float32[Tensor, "N C"]) -> Float32[Tensor, "N C"]:
    return x.exp() / x.exp().sum(-1, keepdim=True)


def test_where_the_reference_overflows_a_kernel_may_too_and_elsewhere_not():
    x = torch.tensor([[100.0, 1.0], [2.0, 1.0]])
    own, right = softmax.reference(x), torch.softmax(x, -1)
    assert own[0, 0].isnan()
    assert outcome(softmax, own, x=x).problem is None
    assert outcome(softmax, right, x=x).problem is None
    own[1] = torch.nan
    assert "[1, 0] is nan, expected 0.73" in (outcome(softmax, own, x=x).problem or "")


@opsmith.op("comparison::norm")
def norm(x: Float[Tensor, "N C"]) -> Float[Tensor, "N"]:
    return (x * x).sum(1).sqrt()


@opsmith.op("comparison::cosine")
def cosine(x: Float[Tensor, "N"], y: Float[Tensor, "N"]) -> Float[Tensor, ""]:
    return (x * y).sum() / ((x * x).sum().sqrt() * (y * y).sum().sqrt())


@opsmith.op("comparison::standardised")
def standardised(x: Float[Tensor, "N C"]) -> Float[Tensor, "N C"]:
    return torch.nn.functional.layer_norm(x, x.shape[1:])


@pytest.mark.parametrize("wrong", [0.0, 1.5e19, -2.2e20])
def test_a_number_is_wrong_where_the_reference_overflows_and_no_overflow_leads_to_it(wrong):
    x = torch.tensor([[1e20, 2e20], [1.0, 2.0]])
    assert norm.reference(x)[0].isinf()
    for right in (norm.reference(x), torch.hypot(*x.unbind(1))):
        assert outcome(norm, right, x=x).problem is None
    problem = outcome(norm, torch.tensor([wrong, 5**0.5]), x=x).problem or ""
    assert problem.startswith(f"the result[0] is {wrong:.6g}, expected 2.23607e+20 ± ")


@opsmith.op("comparison::norm_in_double")
def norm_in_double(x: Float[Tensor, "N C"]) -> Float[Tensor, "N"]:
    return torch.linalg.vector_norm(x, dim=1, dtype=torch.float64).to(x.dtype)


def test_a_kernel_may_not_overflow_where_the_reference_asks_for_a_wider_dtype():
    x = torch.tensor([[1e20, 2e20], [1.0, 2.0]])
    assert outcome(norm_in_double, torch.hypot(*x.unbind(1)), x=x).problem is None
    wrong = outcome(norm_in_double, (x * x).sum(1).sqrt(), x=x).problem or ""
    assert wrong.startswith("the result[0] is inf, expected 2.23607e+20 ± ")
    half = torch.tensor([[300.0, 400.0]], dtype=torch.float16)
    assert outcome(norm_in_double, torch.tensor([500.0]).half(), x=half).problem is None
    assert outcome(norm_in_double, (half * half).sum(1).sqrt(), x=half).problem is not None


@opsmith.op("comparison::cosine_in_single")
def cosine_in_single(x: Float32[Tensor, "N"], y: Float32[Tensor, "N"]) -> Float32[Tensor, ""]:
    return cosine.reference(x.float(), y.float())


@pytest.mark.parametrize("operator", [cosine, cosine_in_single])
def test_what_the_overflow_of_one_step_leads_to_is_right(operator):
    x, y = torch.tensor([1e20, 2e20]), torch.tensor([1e20, 3e20])
    assert operator.reference(x, y).isnan()
    # Divided by its norm, which overflows, each is zero, and the sum of the products is too.
    assert outcome(operator, torch.tensor(0.0), x=x, y=y).problem is None
    problem = outcome(operator, torch.tensor(0.5), x=x, y=y).problem or ""
    assert "is 0.5, expected 0.98" in problem


def test_what_the_overflow_of_a_variance_leads_to_is_right():
    rows = torch.tensor([[1e20, 2e20, 3e20]])
    assert standardised.reference(rows).isnan().all()
    # The mean fits and the variance does not.
    assert outcome(standardised, torch.zeros(1, 3), x=rows).problem is None
    assert outcome(standardised, torch.ones(1, 3), x=rows).problem is not None


def test_double_precision_is_judged_where_single_precision_overflows():
    x = torch.tensor([[1e20, 2e20]], dtype=torch.float64)
    assert outcome(norm, torch.hypot(*x.unbind(1)), x=x).problem is None
    for wrong in (torch.inf, torch.nan):
        problem = outcome(norm, torch.tensor([wrong], dtype=torch.float64), x=x).problem
        assert f"is {wrong}, expected 2.23607e+20" in (problem or "")


def test_nan_is_right_where_it_does_not_come_from_an_overflow_in_double_precision():
    x = torch.tensor([[1e20, 1.0], [2.0, 1.0]])
    known = expected_of(softmax, {"x": x}).values[0]
    assert known[0, 0].isnan()  # what exp(1e20) is divided by is as infinite
    right = torch.softmax(x, -1)
    assert outcome(softmax, right, x=x).problem is None
    right[1] = 0
    assert "[1, 0] is 0, expected 0.73" in (outcome(softmax, right, x=x).problem or "")

    @opsmith.op("comparison::root")
    def root(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
        return x.sqrt()

    problem = outcome(root, torch.tensor([0.0]), x=torch.tensor([-1.0])).problem
    assert "is 0, expected nan" in (problem or "")


@opsmith.op("comparison::ratio_of_powers")
def ratio_of_powers(x: Float32[Tensor, "N"], y: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
    return (x * y) ** 9 / (x * x) ** 9


def test_nan_is_right_where_it_does_not_come_from_what_vanishes_in_double_precision():
    x = torch.tensor([[-1e19, -2e19], [2.0, 1.0]])
    assert softmax.reference(x.double())[0].isnan().all()  # 0 / 0
    right = torch.softmax(x, -1)
    assert outcome(softmax, right, x=x).problem is None
    right[1, 0] = 0
    assert "[1, 0] is 0, expected 0.73" in (outcome(softmax, right, x=x).problem or "")

    tiny = torch.tensor([1e-30])
    one = torch.tensor([1.0])
    assert outcome(ratio_of_powers, one, x=tiny, y=tiny).problem is None
    zero = torch.tensor([0.0])
    problem = outcome(ratio_of_powers, one, x=zero, y=zero).problem
    assert "is 1, expected nan" in (problem or "")


@opsmith.op("comparison::squared")
def squared(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
    return x * x


@pytest.mark.parametrize("wrong", [float("nan"), float("-inf"), torch.finfo(torch.float32).max])
def test_one_term_that_is_too_large_is_infinity_of_its_own_sign(wrong):
    x = torch.full((64,), 1e20)
    assert outcome(squared, torch.full((64,), torch.inf), x=x).problem is None
    assert outcome(squared, torch.full((64,), wrong), x=x).problem is not None


def test_terms_that_are_too_large_and_cancel_may_be_nan():
    x = torch.tensor([[3e38, 3e38, -3e38, -3e38]])
    assert outcome(total, torch.tensor([torch.nan]), x=x).problem is None
    assert outcome(total, torch.tensor([torch.nan]), x=x / 10).problem is not None


@opsmith.op("comparison::rotations")
def rotations(q: Float[Tensor, "N 4"]) -> Float[Tensor, "N 3"]:
    """Return the diagonals of rotation matrices; quaternions (w, x, y, z) are normalised here."""
    _, x, y, z = (q / q.square().sum(1, keepdim=True).sqrt()).unbind(1)
    return 1 - 2 * torch.stack((y * y + z * z, x * x + z * z, x * x + y * y), 1)


def by_squares(q: Tensor) -> Tensor:
    """Give the same by another formula, which rests on the norm being 1."""
    w, x, y, z = (q / q.square().sum(1, keepdim=True).sqrt()).square().unbind(1)
    return torch.stack((w + x - y - z, w - x + y - z, w - x - y + z), 1)


def test_where_an_overflow_leads_the_reference_to_a_wrong_number_no_other_is_judged():
    q = torch.tensor([[3e20, 2e18, -1e18, 3e18], [1.0, -2.0, 0.5, 1.0]])
    assert rotations.reference(q)[0].tolist() == [1, 1, 1]
    assert by_squares(q)[0].tolist() == [0, 0, 0]
    for right in (rotations.reference(q), by_squares(q), by_squares(q.double()).float()):
        assert outcome(rotations, right, q=q).problem is None
    wrong = by_squares(q)
    wrong[1, 2] *= 1.001
    problem = outcome(rotations, wrong, q=q).problem or ""
    assert problem.startswith("the result[1, 2] is ")
    assert problem.endswith("; 1 of 6 elements are wrong")


def test_where_a_step_vanishes_in_double_precision_infinity_and_nan_are_alike():
    q = torch.tensor([[1e-200, 2e-200, -1e-200, 3e-200]], dtype=torch.float64)
    assert rotations.reference(q).isinf().all()
    assert outcome(rotations, by_squares(q), q=q).problem is None
    assert by_squares(q).isnan().all()
    assert outcome(rotations, torch.zeros(1, 3).double(), q=q).problem is not None
