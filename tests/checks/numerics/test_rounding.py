"""What simulated rounding adds to results, and to which it adds nothing."""

import math

import pytest
import torch
from jaxtyping import Float, Float32, Float64
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

import opsmith
from opsmith.checks.numerics.comparison import compare
from opsmith.checks.numerics.oracle import expected_of
from opsmith.checks.numerics.rounding import RandomRounding


def test_what_is_exact_is_not_rounded():
    whole = torch.arange(12.0, dtype=torch.float64).view(3, 4)
    with RandomRounding(torch.float32, torch.Generator().manual_seed(0)):
        exact = whole.sum(1), whole - whole.clone(), -whole.abs(), whole.sort().values * 0.5
        rounded = whole / 3
    assert exact[0].tolist() == [6, 22, 38]
    assert not bool(exact[1].any())
    assert torch.equal(exact[2], -whole)
    assert torch.equal(exact[3], whole / 2)
    assert bool((rounded[whole % 3 != 0] != (whole / 3)[whole % 3 != 0]).all())


def test_a_term_that_is_lost_is_rounded_and_a_sum_of_the_same_size_is_not():
    one = torch.ones(1000, dtype=torch.float64)
    with RandomRounding(torch.float32, torch.Generator().manual_seed(0)):
        exact, lost = one - 2 * one, one * 2.0**60 + 3 * one
    assert torch.equal(exact, -one)
    assert 0.4 < (lost < 2.0**60).double().mean() < 0.6


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_what_is_rounded_beside_one_is_off_by_more_than_its_own_digits(dtype):
    small = torch.full((1000,), -12.0, dtype=torch.float64)
    right, errors = small.sigmoid(), []
    for units in ({}, {"aten::sigmoid": 1.4}):
        generator = torch.Generator().manual_seed(0)
        with RandomRounding(dtype, generator, beside_one=units):
            errors.append((torch.sigmoid(small) - right).abs().max())
    assert errors[0] < 4 * torch.finfo(dtype).eps * right[0]
    single = torch.finfo(torch.float32).eps
    assert 1.3 * single < errors[1] < 1.8 * single


class Largest(TorchDispatchMode):
    """Notes how many elements the largest tensor has that any operator gives."""

    elements = 0

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        returned = func(*args, **(kwargs or {}))
        for tensor in returned if isinstance(returned, tuple | list) else [returned]:
            if isinstance(tensor, torch.Tensor):
                self.elements = max(self.elements, tensor.numel())
        return returned


@pytest.mark.parametrize("values", [torch.ones(3000).double() / 10, torch.ones(3000).long()])
@pytest.mark.parametrize("running", [torch.cumsum, torch.cumprod])
def test_rounding_takes_no_more_memory_than_a_few_arguments(running, values):
    rounding = RandomRounding(torch.float32, torch.Generator().manual_seed(0))
    with Largest() as seen, rounding:
        running(values, 0)
    assert seen.elements == 3000


def test_a_running_sum_has_the_roundings_of_all_its_steps():
    terms = torch.full((1, 20_000), 0.1, dtype=torch.float64)
    with RandomRounding(torch.float32, torch.Generator().manual_seed(0)):
        found = terms.cumsum(1)
    one_rounding = torch.finfo(torch.float32).eps * terms.cumsum(1)
    error = (found - terms.cumsum(1)).abs()
    assert bool((error <= one_rounding * 20_000).all())
    assert error[0, -1] > 4 * one_rounding[0, -1]


@pytest.mark.parametrize(
    "scatter",
    [
        lambda sums, places, terms: sums.index_add(0, places, terms),
        lambda sums, places, terms: sums.scatter_add(0, places, terms),
        lambda sums, places, terms: sums.index_put((places,), terms, accumulate=True),
        lambda sums, places, terms: sums.clone().index_add_(0, places, -terms, alpha=-1),
        lambda sums, places, terms: sums.clone().scatter_add_(0, places, terms),
        lambda sums, places, terms: sums.clone().index_put_((places,), terms, accumulate=True),
    ],
)
def test_a_scattered_sum_has_the_roundings_of_the_sum_in_each_place(scatter):
    places = torch.tensor([3] * 5 + [0] * 2000 + [1] * 500 + [4])[torch.randperm(2506)]
    terms = torch.full((2506,), 0.1).float().double()
    terms[places == 4] = math.inf
    with RandomRounding(torch.float32, torch.Generator().manual_seed(0), in_order=True):
        found = scatter(torch.ones(5).double(), places, terms)
    right = torch.ones(5)
    for place, term in zip(places.tolist(), terms.float(), strict=True):
        right[place] += term
    assert torch.allclose(found, right.double(), rtol=1e-7), (found, right)
    assert (found - scatter(torch.ones(5).double(), places, terms)).abs()[0] > 1e-3


@pytest.mark.parametrize("shape", [(1, 0), (0, 3), (0, 0)])
def test_sums_of_no_terms_are_rounded_as_others(shape):
    x, w = torch.zeros(shape).double(), torch.zeros(2, shape[1]).double()
    with RandomRounding(torch.float32, torch.Generator().manual_seed(0)):
        found = torch.nn.functional.linear(x, w, torch.ones(2).double() / 3), x.sum(1), x.sum(0)
    assert [one.shape for one in found] == [(shape[0], 2), (shape[0],), (shape[1],)]
    assert not found[0].numel() or bool((found[0] != 1 / 3).any())


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("function", [torch.tanh, torch.erf, torch.sigmoid])
def test_a_limit_that_is_reached_in_double_precision_is_no_exact_number(dtype, function):
    x = torch.full((200,), 60.0, dtype=torch.float64)
    with RandomRounding(dtype, torch.Generator().manual_seed(0)):
        below = 1 - function(x)
        of_infinity = 1 - function(x * torch.inf)
    assert 0 < below.abs().max() <= 2 * torch.finfo(dtype).eps
    assert (below == 0).any()
    assert (of_infinity == 0).all()


def test_a_kernel_may_be_better_than_a_reference_that_cancels():
    @opsmith.op("rounding::gelu")
    def gelu(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
        return torch.nn.functional.gelu(x)

    @opsmith.op("rounding::gelu_of_tanh")
    def gelu_of_tanh(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
        return 0.5 * x * (1 + torch.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))

    x = torch.tensor([-9.43, -8.9, -7.0, -2.0, 3.0])
    wide = x.double()
    of_tanh = 2 * math.sqrt(2 / math.pi) * (wide + 0.044715 * wide**3)
    for operator, right in (
        (gelu, wide * 0.5 * torch.special.erfc(-wide / math.sqrt(2))),
        (gelu_of_tanh, wide * torch.sigmoid(of_tanh)),
    ):
        truth = expected_of(operator, {"x": x})
        assert compare([right.float()], truth).problem is None
        assert compare([right.float() - 1e-4], truth).problem is not None


def test_what_double_precision_amplifies_to_noise_is_no_fault():
    """As the gradient of an inverse of a large triangular matrix, whose bits threads decide."""

    @opsmith.op("rounding::chaos")
    def chaos(x: Float64[Tensor, "N"], turns: int) -> Float64[Tensor, "N"]:
        for _ in range(turns):
            x = 4 * x * (1 - x)
        return x

    def otherwise(x, turns):
        for _ in range(turns):
            x = 4 * x - 4 * x * x
        return x

    x = torch.rand(20, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
    noise, exact = (expected_of(chaos, {"x": x, "turns": turns}) for turns in (60, 5))
    assert (otherwise(x, 60) - noise.values[0]).abs().max() > 0.1
    assert compare([otherwise(x, 60)], noise).problem is None
    assert compare([otherwise(x, 60) + 8], noise).problem is not None
    assert compare([otherwise(x, 5)], exact).problem is None
    assert compare([otherwise(x, 5) * (1 + 1e-11)], exact).problem is not None


@pytest.mark.parametrize("seed", range(3))
def test_an_inverse_is_as_exact_as_its_matrix_is_large(seed):
    """LAPACK's, by elimination, and one by Householder's reflections differ in small elements."""

    @opsmith.op("rounding::inverse")
    def inverse(x: Float32[Tensor, "B 4 4"]) -> Float32[Tensor, "B 4 4"]:
        return torch.linalg.inv(x)

    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(300, 4, 4, generator=generator)
    q, r = torch.linalg.qr(x)
    right = torch.linalg.solve_triangular(r, q.mT, upper=True)
    truth = expected_of(inverse, {"x": x})
    assert compare([right], truth).problem is None
    assert compare([right.bfloat16().float()], truth).problem is not None
    refined = right + 1e-5 * torch.randn(300, 4, 4, generator=generator)
    assert compare([refined], truth).problem is not None
    assert compare([refined @ (2 * torch.eye(4) - x @ refined)], truth).problem is None


def test_an_exponential_of_matrices_is_as_exact_as_its_squarings():
    """Rodrigues' formula is nearer to the truth than scaling and squaring, in double precision."""

    @opsmith.op("rounding::rotation")
    def rotation(v: Float64[Tensor, "B 3"]) -> Float64[Tensor, "B 3 3"]:
        return torch.linalg.matrix_exp(_cross(v))

    v = 20 * torch.rand(4000, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    v -= 10
    angle = v.norm(dim=-1)[:, None, None]
    cross = _cross(v / angle[..., 0])
    right = torch.eye(3).double() + angle.sin() * cross + 2 * (angle / 2).sin() ** 2 * cross @ cross
    truth = expected_of(rotation, {"v": v})
    assert compare([right], truth).problem is None
    assert compare([right * (1 + 1e-13)], truth).problem is not None


def _cross(v):
    x, y, z = v.unbind(-1)
    none = torch.zeros_like(x)
    return torch.stack([none, -z, y, z, none, -x, -y, x, none], -1).reshape(-1, 3, 3)


def test_numbers_below_the_normal_ones_are_rounded_up_or_down_by_their_distance():
    least = torch.finfo(torch.float32).smallest_normal * torch.finfo(torch.float32).eps
    between = torch.full((1000,), 100.25 * least, dtype=torch.float64)
    with RandomRounding(torch.float32, torch.Generator().manual_seed(0)):
        rounded = between * 1.0
    up = (rounded == 101 * least).float().mean()
    assert bool(((rounded == 100 * least) | (rounded == 101 * least)).all())
    assert 0.2 < up < 0.3


def test_zeros_that_pytorch_gives_no_memory_are_rounded_as_others():
    x = torch.tensor([1.5, -2.0], dtype=torch.float64, requires_grad=True)
    with RandomRounding(torch.float32, torch.Generator().manual_seed(0)):
        (first,) = torch.autograd.grad((x * x.abs()).sum(), x, create_graph=True)
        (second,) = torch.autograd.grad(first.sum(), x)
    assert second.tolist() == [2, -2]


@opsmith.op("rounding::resized_backward")
def resized_backward(
    grad: Float[Tensor, "N C O P"], h: int, w: int
) -> Float[Tensor, "N C {h} {w}"]:
    x = grad.new_zeros(*grad.shape[:2], h, w, requires_grad=True)
    with torch.enable_grad():
        y = torch.nn.functional.interpolate(x, grad.shape[2:], mode="bilinear")
    return torch.autograd.grad(y, x, grad)[0]


def weights(out: int, count: int) -> Tensor:
    """The weights of linear resizing, whose coordinates are in single precision."""
    at = (torch.arange(out) + 0.5) * torch.tensor(count / out) - 0.5
    return (1 - (at.clamp(0, count - 1)[:, None] - torch.arange(count)).abs()).clamp(0)


def test_coordinates_of_resizing_are_rounded_in_its_gradient_too():
    grad = torch.randn(3, 3, 5, 5, generator=torch.Generator().manual_seed(0))
    given = weights(5, 9).T @ grad @ weights(5, 9)
    truth = expected_of(resized_backward, {"grad": grad, "h": 9, "w": 9})
    assert compare([given], truth).problem is None
    assert compare([given * (1 + 1e-3)], truth).problem is not None
