"""Random numbers that are a function of a seed, an offset and an index: Philox4x32-10.

``<opsmith/philox.h>`` computes the same words, uniform numbers and decisions, bit for bit, and
normal numbers up to rounding. Everything here is plain PyTorch, on any device, and can be traced.

The generator is that of Salmon, Moraes, Dror and Shaw, "Parallel random numbers: as easy as 1, 2,
3" (SC 2011), with counter and key laid out as in PyTorch's ``at::philox_engine``: the key is the
seed; the counter holds, in blocks of four words, the offset plus the block's number in its lower
half, and the subsequence in its upper half.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

if TYPE_CHECKING:
    Philox = Any  # a tensor in the body of a reference; a generator or nothing in calls
else:
    from opsmith.signature.annotations import Philox

__all__ = ["Philox", "bernoulli", "draw", "normal", "state", "uniform", "words"]

_WORD = 0xFFFFFFFF
_MULTIPLIERS = 0xD2511F53, 0xCD9E8D57
_STEPS = 0x9E3779B9, 0xBB67AE85
_ROUNDS = 10
_BELOW = 1 << 62


def state(seed: int, offset: int = 0) -> Tensor:
    """Return a seed and an offset as an operator takes them: a tensor of two int64.

    Args:
        seed: any int of 64 bits, signed or unsigned.
        offset: the number of blocks of four words to skip.
    """
    return torch.tensor([_signed(seed), _signed(offset)], dtype=torch.int64)


def draw(
    generator: torch.Generator | None = None, *, device: torch.device | str | None = None
) -> Tensor:
    """Draw a seed and an offset from a generator, which moves on, as a call of an operator does.

    Args:
        generator: the default generator of the device if it is left out.
        device: where the two numbers are needed; by default where the generator is.
    """
    if device is None and generator is not None:
        device = generator.device
    # Far below the largest int64, so that an offset plus the number of a block does not wrap.
    return torch.randint(_BELOW, (2,), generator=generator, device=device, dtype=torch.int64)


def words(rng: Tensor, shape: Sequence[int], *, subsequence: int = 0) -> Tensor:
    """Return random words: int64 with 0 <= word < 2**32, in the order of their indices.

    Args:
        rng: seed and offset, two int64.
        shape: the shape of the result; the element at flat index i is word i.
        subsequence: the number of one of 2**64 streams, which do not overlap.
    """
    count = math.prod(shape)
    blocks = torch.arange((count + 3) // 4, device=rng.device, dtype=torch.int64)
    return _words(rng, blocks, subsequence).reshape(-1)[:count].reshape(tuple(shape))


def uniform(
    rng: Tensor, shape: Sequence[int], *, dtype: torch.dtype = torch.float32, subsequence: int = 0
) -> Tensor:
    """Return numbers that are uniform in [0, 1): multiples of 2**-24, exact in single precision.

    Args:
        dtype: the floating dtype of the result; half precision rounds, perhaps to 1.
        rng, subsequence: as in `words`.
    """
    return _unit(words(rng, shape, subsequence=subsequence)).to(dtype)


def bernoulli(
    rng: Tensor, probability: float, shape: Sequence[int], *, subsequence: int = 0
) -> Tensor:
    """Return a bool for each index, True with the given probability, decided in whole numbers.

    Args:
        probability: is rounded up to a multiple of 2**-32; 1 gives True always, and 0 never.
        rng, subsequence: as in `words`.
    """
    threshold = math.ceil(min(max(probability, 0.0), 1.0) * 2.0**32)
    return words(rng, shape, subsequence=subsequence) < threshold


def normal(
    rng: Tensor, shape: Sequence[int], *, dtype: torch.dtype = torch.float32, subsequence: int = 0
) -> Tensor:
    """Return numbers of the standard normal distribution, by Box and Muller's transform.

    Args:
        shape: the shape of the result; the elements at flat indices 2k and 2k+1 are made of the
            words 2k and 2k+1. None is beyond 5.8.
        dtype: the floating dtype of the result; half precision is computed in single precision.
        rng, subsequence: as in `words`.
    """
    count = math.prod(shape)
    pairs = words(rng, ((count + 1) // 2, 2), subsequence=subsequence)
    computed = torch.float64 if dtype == torch.float64 else torch.float32
    one, other = _unit(pairs).to(computed).unbind(1)
    radius = (-2 * (one + 2.0**-24).log()).sqrt()
    angle = 2 * math.pi * other
    both = torch.stack((radius * angle.cos(), radius * angle.sin()), 1)
    return both.reshape(-1)[:count].reshape(tuple(shape)).to(dtype)


def _unit(numbers: Tensor) -> Tensor:
    return (numbers >> 8).to(torch.float32) * 2.0**-24


def _signed(number: int) -> int:
    """Return the int64 that has the bits of an int of 64 bits."""
    return (number + (1 << 63)) % (1 << 64) - (1 << 63)


def _words(rng: Tensor, blocks: Tensor, subsequence: int) -> Tensor:
    """Return the four words of each block, along a new last dimension."""
    seed, offset = rng.unbind(0)
    key = [seed & _WORD, (seed >> 32) & _WORD]
    index = offset + blocks
    upper = _signed(subsequence)
    counter = [
        index & _WORD,
        (index >> 32) & _WORD,
        torch.full_like(index, upper & _WORD),
        torch.full_like(index, (upper >> 32) & _WORD),
    ]
    for _ in range(_ROUNDS):
        (high0, low0), (high1, low1) = (
            _product(word, multiplier)
            for word, multiplier in zip(counter[::2], _MULTIPLIERS, strict=True)
        )
        counter = [high1 ^ counter[1] ^ key[0], low1, high0 ^ counter[3] ^ key[1], low0]
        key = [(word + step) & _WORD for word, step in zip(key, _STEPS, strict=True)]
    return torch.stack(counter, -1)


def _product(word: Tensor, multiplier: int) -> tuple[Tensor, Tensor]:
    """Return the upper and the lower word of a product of two words."""
    # An int64 holds the 64 bits of the product, though as a signed number.
    product = word * multiplier
    return (product >> 32) & _WORD, product & _WORD
