"""Operators that take the seed and offset of a random generator."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from jaxtyping import Bool, Float, Float32, Float64, Int64
from torch import Tensor
from torch._dynamo.testing import CompileCounterWithBackend

import opsmith
from opsmith import philox

pytestmark = pytest.mark.slow(cases=2)

SOURCES = Path(__file__).parent / "random_sources"


@opsmith.op("random_numbers::drop")
def drop(x: Float[Tensor, "*n"], rng: opsmith.Philox = None, p: float = 0.5) -> Float[Tensor, "*n"]:
    """Zero each element with probability p."""
    return x * philox.bernoulli(rng, 1 - p, x.shape)


@opsmith.op("random_numbers::drop_backward")
def drop_backward(grad: Float[Tensor, "*n"], rng: opsmith.Philox, p: float) -> Float[Tensor, "*n"]:
    """The gradient of drop, by the mask of its seed and offset."""
    return grad * philox.bernoulli(rng, 1 - p, grad.shape)


drop.register_backward(drop_backward, grads={"x": 0})


@opsmith.op("random_numbers::add_noise")
def add_noise(
    x: Float[Tensor, "N"], scales: list[Float[Tensor, "N"]], rng: opsmith.Philox = None
) -> Float[Tensor, "N"]:
    """Add noise, in proportion to each of several scales."""
    for stream, scale in enumerate(scales):
        x = x + scale * philox.uniform(rng, x.shape, dtype=x.dtype, subsequence=stream)
    return x


@opsmith.op("random_numbers::numbers")
def numbers(
    rng: opsmith.Philox, n: int, p: float, subsequence: int
) -> tuple[
    Int64[Tensor, "{n}"],
    Float32[Tensor, "{n}"],
    Bool[Tensor, "{n}"],
    Float32[Tensor, "{n}"],
    Float64[Tensor, "{n}"],
    Int64[Tensor, "{n}"],
]:
    """Give words, uniform numbers, decisions, normal numbers, and the words again."""
    words = philox.words(rng, (n,), subsequence=subsequence)
    return (
        words,
        philox.uniform(rng, (n,), subsequence=subsequence),
        philox.bernoulli(rng, p, (n,), subsequence=subsequence),
        philox.normal(rng, (n,), subsequence=subsequence),
        philox.normal(rng, (n,), dtype=torch.float64, subsequence=subsequence),
        words.clone(),
    )


_TORCH = Path(torch.__file__).parent / "include"
numbers.register_kernel("cpu", source=SOURCES / "numbers.cpp", flags=(f"-I{_TORCH}",))

X = torch.ones(64)


# The vectors that Random123 publishes (tests/kat_vectors): key, counter, words.
@pytest.mark.parametrize(
    ("seed", "offset", "subsequence", "words"),
    [
        (0, 0, 0, "6627e8d5 e169c58d bc57ac4c 9b00dbd8"),
        (2**64 - 1, 2**64 - 1, 2**64 - 1, "408f276d 41c83b0e a20bc7c6 6d5451fd"),
        (
            0x299F31D0A4093822,
            0x85A308D3243F6A88,
            0x0370734413198A2E,
            "d16cfe09 94fdcceb 5001e420 24126ea1",
        ),
    ],
)
def test_words_are_those_that_the_authors_of_philox_publish(
    seed: int, offset: int, subsequence: int, words: str
) -> None:
    found = philox.words(philox.state(seed, offset), (4,), subsequence=subsequence)
    assert [f"{word:08x}" for word in found.tolist()] == words.split()


@pytest.mark.parametrize(
    ("seed", "offset", "subsequence"), [(0, 0, 0), (-1, 2**40 + 3, 7), (2**63 - 5, 5, 2**62)]
)
def test_python_cpp_and_pytorchs_engine_give_the_same_numbers(
    seed: int, offset: int, subsequence: int
) -> None:
    arguments = (philox.state(seed, offset), 1003, 0.3, subsequence)
    compiled = numbers(*arguments)
    assert numbers.kernels["cpu"].calls > 0
    expected = numbers.reference(*arguments)
    for exact in (0, 1, 2, 5):
        assert torch.equal(compiled[exact], expected[exact])
    torch.testing.assert_close(compiled[3], expected[3], rtol=1e-5, atol=1e-6)
    torch.testing.assert_close(compiled[4], expected[4], rtol=1e-13, atol=1e-14)


def test_an_offset_skips_blocks_of_four_words() -> None:
    everything = philox.words(philox.state(7, 0), (12,))
    assert torch.equal(philox.words(philox.state(7, 2), (4,)), everything[8:])
    assert torch.equal(philox.words(philox.state(7, 2), (2, 2)), everything[8:].reshape(2, 2))


def test_probabilities_of_zero_and_one_are_certain() -> None:
    rng = philox.state(1)
    assert philox.bernoulli(rng, 1.0, (1000,)).all()
    assert not philox.bernoulli(rng, 0.0, (1000,)).any()


def test_uniform_numbers_are_the_same_in_single_and_double_precision() -> None:
    rng = philox.state(1, 2)
    single, double = (philox.uniform(rng, (999,), dtype=d) for d in (torch.float, torch.double))
    assert torch.equal(single.double(), double)


def test_calls_after_one_manual_seed_repeat_and_draws_differ() -> None:
    torch.manual_seed(3)
    first, second = drop(X), drop(X, 0.3)
    assert not torch.equal(first, second)
    torch.manual_seed(3)
    assert torch.equal(drop(X, None), first)
    assert torch.equal(drop(x=X, p=0.3), second)


def test_a_generator_in_its_place_is_drawn_from() -> None:
    mine = torch.Generator().manual_seed(5)
    before = torch.get_rng_state()
    found = [drop(X, mine), drop(X, mine, 0.5), drop(X, rng=mine, p=0.5), drop(X, p=0.5, rng=mine)]
    assert torch.equal(torch.get_rng_state(), before)
    mine.manual_seed(5)
    assert all(torch.equal(one, drop(X, philox.draw(mine))) for one in found)


def test_what_is_drawn_stands_behind_other_tensors_and_lists() -> None:
    scales = [X, 2 * X]
    torch.manual_seed(1)
    drawn = add_noise(X, scales)
    torch.manual_seed(1)
    assert torch.equal(drawn, add_noise(X, rng=None, scales=scales))
    torch.manual_seed(1)
    assert torch.equal(drawn, add_noise.reference(X, scales, philox.draw()))


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (
            {"rng": 4},
            "argument 'rng' is 4 (int), expected seed and offset (Int64[Tensor, \"2\"]), "
            "a torch.Generator, or nothing.",
        ),
        (
            {"rng": torch.zeros(3, dtype=torch.int64)},
            "argument 'rng' does not fit Int64[Tensor, \"2\"]: dimension 0 is 3, expected 2.",
        ),
        (
            {"x": torch.ones(2, device="meta"), "rng": torch.Generator()},
            "argument 'rng' is a generator on cpu, expected one on meta, where the tensors are.",
        ),
        ({"x": "a"}, "argument 'x' is 'a' (str), expected Float[Tensor, \"*n\"]."),
    ],
)
def test_what_is_no_seed_and_offset_is_refused(arguments: dict[str, object], said: str) -> None:
    with pytest.raises(opsmith.ArgumentError) as refused:
        drop(**{"x": X, **arguments})
    assert str(refused.value).startswith(f"random_numbers::drop: {said}")


def test_the_gradient_has_the_mask_of_the_result() -> None:
    x = torch.ones(64, requires_grad=True)
    result = drop(x)
    result.sum().backward()
    assert torch.equal(x.grad, result.detach())
    assert 0 < int(result.sum()) < 64


def test_compiled_code_draws_anew_in_each_call_and_is_not_compiled_again() -> None:
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(lambda x: drop(x, p=0.25) * 2, backend=counter, fullgraph=True)
    found = []
    for seed in (1, 2, 1):
        torch.manual_seed(seed)
        found.append(torch.stack((compiled(X), compiled(X))))
    assert torch.equal(found[0], found[2])
    assert not torch.equal(found[0], found[1])
    assert not torch.equal(found[0][0], found[0][1])
    assert counter.frame_count == 1


def test_compiled_code_gives_the_numbers_of_the_seed_and_offset_it_is_passed() -> None:
    counter = CompileCounterWithBackend("aot_eager")
    compiled = torch.compile(drop, backend=counter, fullgraph=True)
    for seed in range(3):
        rng = philox.state(seed, seed)
        assert torch.equal(compiled(X, rng), drop(X, rng))
    assert counter.frame_count == 1


def test_an_exported_program_takes_seed_and_offset_as_an_input() -> None:
    class Model(torch.nn.Module):
        def forward(self, x: Tensor, rng: Tensor) -> Tensor:
            return drop(x, rng)

    program = torch.export.export(Model(), (X, philox.state(0))).module()
    for seed in range(3):
        rng = philox.state(seed)
        assert torch.equal(program(X, rng), drop(X, rng))


def test_vmap_draws_once_or_for_each_slice_as_it_is_told() -> None:
    x = torch.ones(3, 64)
    same = torch.vmap(drop, randomness="same")(x)
    assert torch.equal(same[0], same[1])
    different = torch.vmap(drop, randomness="different")(x)
    assert not torch.equal(different[0], different[1])
    with pytest.raises(RuntimeError, match="randomness error mode"):
        torch.vmap(drop)(x)


@pytest.mark.long  # builds a wheel; tests/wheels/test_installed.py states that one works
def test_a_wheel_without_opsmith_draws_too() -> None:
    from opsmith.wheels import carried

    found = carried.modules()
    assert {"_opsmith/philox.py", "_opsmith/operators/drawing.py"} <= set(found)
