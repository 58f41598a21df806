"""The row `randomness` finds wrong random numbers, by themselves, and passes right ones."""

from __future__ import annotations

from collections.abc import Callable
from typing import Annotated, Any

import pytest
import torch
from jaxtyping import Float, Float32
from torch import Tensor

import opsmith
from opsmith import Between, checks, philox
from opsmith.checks.numerics.statistics import dependence, off_distribution

pytestmark = pytest.mark.slow(cases=2)


def _declared(name: str, kernel: Callable[..., Any] | None = None) -> opsmith.Operator:
    """Declare dropout, with a kernel that may be wrong."""

    @opsmith.op(f"randomness::{name}")
    def dropout(
        x: Float32[Tensor, "*n"],
        rng: opsmith.Philox = None,
        p: Annotated[float, Between(0.1, 0.9)] = 0.5,
    ) -> Float32[Tensor, "*n"]:
        return x * philox.bernoulli(rng, 1 - p, x.shape)

    if kernel is not None:
        dropout.register_kernel("cpu", kernel)

    @dropout.register_distribution
    def distribution(x: Tensor, p: float, result: Tensor) -> dict[str, Any]:
        return {"kept": (result[x != 0] != 0, 1 - p)}

    return dropout


def _right(x: Tensor, rng: Tensor, p: float) -> Tensor:
    return torch.where(philox.uniform(rng, x.shape) < 1 - p, x, 0)


def _without_offset(x: Tensor, rng: Tensor, p: float) -> Tensor:
    return x * philox.bernoulli(rng * torch.tensor([1, 0]), 1 - p, x.shape)


def _with_half_the_offset(x: Tensor, rng: Tensor, p: float) -> Tensor:
    return x * philox.bernoulli(rng & torch.tensor([-1, 0xFFFFFFFF]), 1 - p, x.shape)


def _without_seed(x: Tensor, rng: Tensor, p: float) -> Tensor:
    return x * philox.bernoulli(rng * torch.tensor([0, 1]), 1 - p, x.shape)


def _one_for_two(x: Tensor, rng: Tensor, p: float) -> Tensor:
    half = philox.bernoulli(rng, 1 - p, ((x.numel() + 1) // 2,))
    return x * half.repeat_interleave(2)[: x.numel()].reshape(x.shape)


def _by_seed_alone_far_along(x: Tensor, rng: Tensor, p: float) -> Tensor:
    """Take the offset for one element only, so that draws share all others."""
    mask = philox.bernoulli(rng * torch.tensor([1, 0]), 1 - p, x.shape).reshape(-1)
    mask[:1] = philox.bernoulli(rng, 0.5, (x.numel(),))[:1]
    return x * mask.reshape(x.shape)


def _biased(x: Tensor, rng: Tensor, p: float) -> Tensor:
    return x * philox.bernoulli(rng, 1 - 0.9 * p, x.shape)


def _by_threads(x: Tensor, rng: Tensor, p: float) -> Tensor:
    alone = torch.get_num_threads() == 1
    return x * philox.bernoulli(rng, 1 - p, x.shape, subsequence=int(alone))


@pytest.mark.parametrize(
    ("kernel", "check", "code", "said"),
    [
        (
            _without_offset,
            "randomness",
            "OPS-RANDOM-IGNORED",
            "the results are the same for 9 offsets, and differ for other seeds",
        ),
        (
            _with_half_the_offset,
            "randomness",
            "OPS-RANDOM-IGNORED",
            "the same for 9 offsets that differ above bit 32, and differ for other seeds",
        ),
        (
            _without_seed,
            "randomness",
            "OPS-RANDOM-IGNORED",
            "the results are the same for 9 seeds, and differ for other offsets",
        ),
        (
            _one_for_two,
            "randomness",
            "OPS-RANDOM-DEPENDENT",
            "kept: in 160 draws, neighbouring values are correlated",
        ),
        (
            _by_seed_alone_far_along,
            "randomness",
            "OPS-RANDOM-DEPENDENT",
            "kept: in 160 draws, values at one place in two draws are correlated",
        ),
        (_biased, "randomness", "OPS-RANDOM-DISTRIBUTION", "are True, expected"),
        (_by_threads, "determinism", "OPS-DETERMINISM-THREADS", "1 thread and 2 threads"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
@pytest.mark.usefixtures("brief_shrinking")
def test_a_kernel_with_wrong_random_numbers_is_found(
    kernel: Callable[..., Any], check: str, code: str, said: str
) -> None:
    operator = _declared(kernel.__name__, kernel)
    report = checks.run(operator, select=[check], isolate=False, examples=24)
    (row,) = [row for row in report.failures if row.check == check]
    assert (row.code, said in row.message) == (code, True), row.explain()


@pytest.mark.parametrize("seed", range(3))
def test_a_kernel_with_the_stated_distribution_passes(seed: int) -> None:
    operator = _declared(f"right_{seed}", _right)
    report = checks.run(
        operator, select=["randomness", "determinism"], isolate=False, examples=24, seed=seed
    )
    assert report.ok, report.explain()
    assert {row.status for row in report.rows} == {"passed"}


def test_a_case_in_which_nothing_is_random_is_followed_by_others() -> None:
    @opsmith.op("randomness::nothing_dropped_from_nothing")
    def dropout(
        x: Float32[Tensor, "*n"], rng: opsmith.Philox, p: Annotated[float, Between(0, 0.99)]
    ) -> Float32[Tensor, "*n"]:
        return x * philox.bernoulli(rng, 1 - p, x.shape)

    report = checks.run(dropout, select=["randomness"], isolate=False, examples=8)
    assert report.ok, report.explain()


def test_an_operator_whose_results_never_change_has_failed() -> None:
    @opsmith.op("randomness::constant")
    def constant(x: Float[Tensor, "N"], rng: opsmith.Philox) -> Float[Tensor, "N"]:
        return x.clone()

    report = checks.run(constant, select=["randomness"], isolate=False, examples=8)
    (row,) = report.failures
    assert row.message == "no result of any case depends on seed or offset"


def test_uniform_and_normal_numbers_have_their_distribution() -> None:
    @opsmith.op("randomness::noise")
    def noise(
        x: Float[Tensor, "N C"], rng: opsmith.Philox
    ) -> tuple[Float[Tensor, "N C"], Float[Tensor, "N C"]]:
        return (
            philox.uniform(rng, x.shape, dtype=x.dtype),
            philox.normal(rng, x.shape, dtype=x.dtype, subsequence=1),
        )

    @noise.register_distribution
    def distribution(result_out0: Tensor, result_out1: Tensor) -> dict[str, Tensor]:
        return {"uniform": result_out0, "normal": torch.special.ndtr(result_out1.double())}

    report = checks.run(noise, select=["randomness"], isolate=False, examples=24)
    assert report.ok, report.explain()
    noise.register_distribution(lambda result_out1: {"normal": result_out1 * 0.1 + 0.5})
    (row,) = checks.run(noise, select=["randomness"], isolate=False, examples=24).failures
    assert row.code == "OPS-RANDOM-DISTRIBUTION"
    assert "numbers are not uniform in [0, 1]: chi-square is" in row.message


def test_only_random_operators_have_the_row() -> None:
    @opsmith.op("randomness::plain")
    def plain(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
        return x * 2

    assert checks.run(plain, select=["randomness"], isolate=False).rows == []
    with pytest.raises(opsmith.DeclarationError) as refused:
        plain.register_distribution(lambda result: {"x": result})
    assert str(refused.value) == (
        "randomness::plain: register_distribution: the operator has no distribution, since no "
        "parameter is an opsmith.Philox"
    )


def test_a_wrong_statement_of_a_distribution_is_refused() -> None:
    operator = _declared("stated_wrongly")
    with pytest.raises(opsmith.DeclarationError) as refused:
        operator.register_distribution(lambda q: {"x": q})
    assert str(refused.value) == (
        "randomness::stated_wrongly: register_distribution: the function takes 'q', which is "
        "neither an argument nor a result; there are x, rng, p, result"
    )
    for wrong in (lambda result: result, lambda result: {"kept": result != 0}):
        operator.register_distribution(wrong)
        (row,) = checks.run(operator, select=["randomness"], isolate=False, examples=2).failures
        assert 'expected {"name": numbers uniform in [0, 1]}' in row.message
    operator.register_distribution(lambda x, result: {"kept": (result != 0, x.abs())})
    (row,) = checks.run(operator, select=["randomness"], isolate=False, examples=2).failures
    assert "'kept' has a probability for each of" in row.message
    assert "expected one number for all of them" in row.message


@pytest.mark.parametrize("share", [0.003, 0.5, 0.99])
def test_right_random_numbers_are_within_the_bounds_for_any_seed(share: float) -> None:
    """Try 200 seeds; a bound fails by chance once in 10**10."""
    for seed in range(200):
        draws = list(philox.words(philox.state(seed), (9, 100)) < share * 2**32)
        assert not off_distribution(draws, share)
        assert not dependence(draws, share)
        uniform = list(philox.uniform(philox.state(seed), (9, 100)))
        assert not off_distribution(uniform, None)
        assert not dependence(uniform, None)
