"""The numbers that are never rounded keep the laws of the functions that they stand for."""

import math

import pytest
import torch

from opsmith.checks.numerics.exact import arrays
from opsmith.checks.numerics.exact.reference import ExactReference, LeavesFieldError


@pytest.fixture(params=(0, 3))
def field(request):
    arrays.select(request.param)


def drawn(mode, *shape, seed=0):
    generator = torch.Generator().manual_seed(seed)
    values = torch.randn(shape, generator=generator, dtype=torch.float64)
    return mode.tensor(arrays.drawn(values, seed))


def evaluated(function, *shapes):
    mode = ExactReference()
    given = [drawn(mode, *shape, seed=place) for place, shape in enumerate(shapes)]
    with mode:
        result = function(*given)
    return mode.array(result)


def same(one, other):
    """Return whether two arrays have the same residues, of p or of q."""
    p = (one.residues ^ other.residues) & 0xFFFFFFFF == 0
    q = ((one.residues ^ other.residues) >> 32) & 0xFFFFFFFF == 0
    return bool((p | q).all())


LAWS = {
    "sums": (lambda x, y: (x + y) * (x - y), lambda x, y: x * x - y * y),
    "quotients": (lambda x, y: x / y + 1, lambda x, y: (x + y) / y),
    "exp of a sum": (lambda x, y: torch.exp(x + y), lambda x, y: torch.exp(x) * torch.exp(y)),
    "exp of half": (lambda x, y: torch.exp(x / 2), lambda x, y: torch.exp(x).sqrt()),
    "log of a product": (
        lambda x, y: torch.log(x.exp() * (1 + y * y)),
        lambda x, y: x + torch.log(1 + y * y),
    ),
    "roots of a product": (
        lambda x, y: torch.sqrt((1 + x * x) * (2 + y * y)),
        lambda x, y: torch.sqrt(1 + x * x) * torch.sqrt(2 + y * y),
    ),
    "tanh": (lambda x, y: torch.tanh(x), lambda x, y: 2 * torch.sigmoid(2 * x) - 1),
    "erf is odd": (lambda x, y: torch.erf(-x), lambda x, y: -torch.erf(x)),
    "powers": (lambda x, y: x**3, lambda x, y: x * x * x),
    "powers of 2": (lambda x, y: torch.exp2(x), lambda x, y: torch.exp(x * math.log(2))),
    "a constant": (
        lambda x, y: x * (1 / math.sqrt(32)),
        lambda x, y: x / torch.tensor(32, dtype=torch.float64).sqrt(),
    ),
    "sqrt(2 / pi)": (
        lambda x, y: x * math.sqrt(2 / math.pi),
        lambda x, y: x * 2 / torch.tensor(2 * math.pi, dtype=torch.float64).sqrt(),
    ),
    "a mean": (lambda x, y: x.mean(1), lambda x, y: (x * (1 / x.shape[1])).sum(1)),
    "a matrix product": (lambda x, y: x @ y.T, lambda x, y: torch.einsum("ik,jk->ij", x, y)),
    "a softmax": (
        lambda x, y: torch.softmax(x, 1),
        lambda x, y: x.exp() / x.exp().sum(1, keepdim=True),
    ),
    "scattered sums": (
        lambda x, y: torch.zeros_like(x).index_add(0, torch.tensor([1, 1, 0]), y),
        lambda x, y: torch.stack([y[2], y[0] + y[1], torch.zeros_like(y[0])]),
    ),
    "writes into views": (
        lambda x, y: _written(x, y),
        lambda x, y: torch.cat([x[:, :1] + y[:, :1], x[:, 1:]], 1),
    ),
    "a convolution": (
        lambda x, y: torch.nn.functional.conv1d(x[None, None, 0], y[None, None, 0, :3])[0, 0],
        lambda x, y: x[0].unfold(0, 3, 1) @ y[0, :3],
    ),
}


def _written(x, y):
    out = torch.zeros_like(x)
    out.copy_(x)
    out[:, :1] += y[:, :1]
    return out


@pytest.mark.parametrize("law", LAWS)
def test_laws_hold(law, field):
    one, other = (evaluated(side, (3, 5), (3, 5)) for side in LAWS[law])
    torch.testing.assert_close(one.values, other.values)
    assert same(one, other)


@pytest.mark.parametrize("law", LAWS)
def test_a_millionth_of_a_millionth_is_seen(law, field):
    """The laws hold for their own sides only: a test that sees nothing would pass them too."""
    one = evaluated(lambda x, y: LAWS[law][0](x, y), (3, 5), (3, 5))
    other = evaluated(lambda x, y: LAWS[law][1](x, y) * (1 + 1e-12), (3, 5), (3, 5))
    assert not same(one, other)


_SOME = torch.tensor([[True, False, False, True, True], [True] * 5, [False] * 5])
COMPOSED = {
    "softmax": lambda x, y: torch.softmax(x.masked_fill(_SOME[:1], -math.inf), 1),
    "attention of nothing": lambda x, y: torch.ops.aten._safe_softmax(
        x.masked_fill(_SOME, -math.inf), 1
    ),
    "logsumexp": lambda x, y: torch.logsumexp(x.masked_fill(_SOME, -math.inf), 1),
    "logsumexp of infinity": lambda x, y: torch.logsumexp(x.masked_fill(_SOME, math.inf), 1),
    "lerp": lambda x, y: torch.lerp(x, y, 0.3) + torch.lerp(x, y, 0.75),
    "addcdiv": lambda x, y: torch.addcdiv(x, y, x, value=2),
    "index_add": lambda x, y: x.index_add(1, torch.tensor([4, 0, 0, 4, 1]), y, alpha=3),
}
COMPOSED |= {
    f"norm {order}": lambda x, y, order=order: torch.linalg.vector_norm(x, order, 1)
    for order in (2, 1, 3, 0.5, math.inf, -math.inf, 0, -1)
}


@pytest.mark.parametrize("function", COMPOSED.values(), ids=COMPOSED)
def test_what_is_composed_of_others_has_pytorchs_values(function, field):
    shapes = [(3, 5)] * 2
    given = [drawn(ExactReference(), *shape, seed=place) for place, shape in enumerate(shapes)]
    right = function(*given)
    torch.testing.assert_close(evaluated(function, *shapes).values, right.double(), equal_nan=True)


def test_an_operator_that_the_field_has_not_is_named_with_its_line():
    with pytest.raises(LeavesFieldError, match=r"'digamma', at .*test_numbers\.py:\d+"):
        evaluated(lambda x: torch.digamma(x), (3,))


def test_random_numbers_leave_the_field():
    with pytest.raises(LeavesFieldError, match="random numbers in 'bernoulli'"):
        evaluated(lambda x: torch.bernoulli(x.abs().clamp(0, 1)), (3,))


def test_a_number_of_pythons_leaves_the_field():
    with pytest.raises(LeavesFieldError, match="'_local_scalar_dense'"):
        evaluated(lambda x: x * x[0].item(), (3,))
