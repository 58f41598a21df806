"""Faults that only some values show: large and tiny ones, NaN, ties, ends of a range."""

from __future__ import annotations

from typing import Annotated

import torch
from jaxtyping import BFloat16, Bool, Float, Float32, Int32, Int64
from pairs import pair
from torch import Tensor

from opsmith import Between

KIND, OVERFLOW = "values", "overflow"


def softmax(x: Float[Tensor, "N C"]) -> Float[Tensor, "N C"]:
    return torch.softmax(x, 1)


def _stable_softmax(x):
    # Half has too few digits for the sum.
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    e = (wide - wide.amax(1, keepdim=True)).exp() if x.numel() else wide
    return (e / e.sum(1, keepdim=True)).to(x.dtype)


def _naive_softmax(x):
    wide = x.to(torch.promote_types(x.dtype, torch.float32))
    return (wide.exp() / wide.exp().sum(1, keepdim=True)).to(x.dtype)


pair(KIND, "softmax without its maximum", softmax, wrong=_naive_softmax, right=_stable_softmax)


def logistic(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
    return torch.sigmoid(x)


pair(
    KIND,
    "sigmoid by a quotient",
    logistic,
    wrong=lambda x: x.exp() / (1 + x.exp()),
    right=lambda x: 1 / (1 + (-x).exp()),
)


def hyperbolic(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
    return torch.tanh(x)


pair(
    KIND,
    "tanh by exponentials",
    hyperbolic,
    wrong=lambda x: (x.exp() - (-x).exp()) / (x.exp() + (-x).exp()),
    right=lambda x: x.tanh(),
)


def rectified(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    return torch.relu(x)


pair(
    KIND,
    "relu that swallows NaN",
    rectified,
    wrong=lambda x: torch.where(x > 0, x, 0.0),
    right=lambda x: torch.where(x <= 0, 0.0, x),
)


def largest(x: Float32[Tensor, "N C"]) -> Float32[Tensor, "N"]:
    return x.amax(1) if x.shape[1] else x.new_zeros(x.shape[0])


def _fmax(x):
    out = x.new_full((x.shape[0],), -torch.inf) if x.shape[1] else x.new_zeros(x.shape[0])
    for column in x.unbind(1):
        out = torch.fmax(out, column)
    return out


pair(KIND, "maximum that ignores NaN", largest, wrong=_fmax, right=lambda x: largest(x).clone())


def norm(x: Float32[Tensor, "N C"]) -> Float32[Tensor, "N"]:
    return torch.linalg.vector_norm(x, dim=1, dtype=torch.float64).to(x.dtype)


def _scaled_norm(x):
    largest = x.abs().amax(1, keepdim=True) if x.shape[1] else x.new_ones(x.shape[0], 1)
    usable = (largest > 0) & largest.isfinite()
    scale = torch.where(usable, largest, 1.0)
    return ((x / scale).square().sum(1, keepdim=True).sqrt() * scale).squeeze(1)


pair(KIND, "norm that overflows", norm, wrong=lambda x: (x * x).sum(1).sqrt(), right=_scaled_norm)


def kept(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
    return x * 1


pair(
    KIND,
    "denormal numbers flushed to zero",
    kept,
    wrong=lambda x: torch.where(x.abs() < 1.2e-38, 0.0, x) * 1,
    right=lambda x: x.clone(),
)


def sign_of(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
    return torch.copysign(torch.ones_like(x), x)


pair(
    KIND,
    "the sign of zero lost",
    sign_of,
    wrong=lambda x: torch.where(x < 0, -1.0, 1.0),
    right=lambda x: torch.where(torch.signbit(x), -1.0, 1.0),
)


def added_up(x: Float[Tensor, "N C"]) -> Float[Tensor, "N"]:
    return x.sum(1)


def _one_by_one(x):
    out = x.new_zeros(x.shape[0])
    for column in x.unbind(1):
        out = out + column
    return out


pair(
    KIND,
    "a sum in the narrow dtype",
    added_up,
    wrong=_one_by_one,
    right=lambda x: x.to(torch.promote_types(x.dtype, torch.float32)).sum(1).to(x.dtype),
    said={"reference": ("float16",)},
)


def magnitudes(x: BFloat16[Tensor, "A B C D E F"]) -> BFloat16[Tensor, "A B C D E"]:
    return x.float().abs().sum(5).to(x.dtype)


# A short sum of terms of one sign is within its tolerance.
pair(
    KIND,
    "a sum of magnitudes in bfloat16, over one of six dimensions",
    magnitudes,
    wrong=lambda x: _one_by_one(x.abs().flatten(0, 4)).view(x.shape[:-1]),
)


def moving_sum(
    x: Float32[Tensor, "N"], window: Annotated[int, Between(1, None)] = 3
) -> Float32[Tensor, "N"]:
    return torch.nn.functional.pad(x, (window - 1, 0)).unfold(0, window, 1).sum(1)


def _of_eight(x, window):
    return moving_sum(x, min(window, 8))


pair(KIND, "a window of more than eight cut off", moving_sum, wrong=_of_eight)


def counted(x: Int64[Tensor, "N"]) -> Int64[Tensor, ""]:
    return x.sum()


pair(
    KIND,
    "a sum in 32 bits",
    counted,
    wrong=lambda x: x.int().sum(dtype=torch.int32).long(),
    right=lambda x: x.sum(),
)


def halved(x: Int32[Tensor, "N"]) -> Int32[Tensor, "N"]:
    return x // 2


pair(
    KIND,
    "division that truncates",
    halved,
    wrong=lambda x: torch.div(x, 2, rounding_mode="trunc"),
    right=lambda x: x >> 1,
)


def wrapped(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
    return torch.remainder(x, 3.0)


pair(
    KIND,
    "remainder with the sign of the dividend",
    wrapped,
    wrong=lambda x: torch.fmod(x, 3.0),
    right=lambda x: torch.remainder(x, 3.0),
)


def rounded(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
    return torch.round(x)


def _halves(dtype, seed):
    del dtype, seed
    yield {"x": torch.tensor([0.5, 1.5, 2.5, -0.5, -1.5])}


pair(
    KIND,
    "halves rounded up",
    rounded,
    wrong=lambda x: torch.floor(x + 0.5),
    right=lambda x: x.round(),
    cases=_halves,
)


def order(x: Float32[Tensor, "N"]) -> Int64[Tensor, "N"]:
    return torch.argsort(x, stable=True)


pair(
    KIND,
    "a sort that swaps ties",
    order,
    wrong=lambda x: x.shape[0] - 1 - torch.argsort(x.flip(0), stable=True),
    right=lambda x: torch.argsort(x, stable=True),
)


def gelu(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
    return torch.nn.functional.gelu(x)


pair(
    KIND,
    "gelu by the formula with tanh",
    gelu,
    wrong=lambda x: torch.nn.functional.gelu(x, approximate="tanh"),
    right=lambda x: x * 0.5 * torch.erfc(-x / 2**0.5),
)


def inverse_root(x: Float32[Tensor, "N C"]) -> Float32[Tensor, "N C"]:
    return x * torch.rsqrt((x * x).mean(1, keepdim=True) + 1e-6)


pair(
    KIND,
    "epsilon outside of the root",
    inverse_root,
    wrong=lambda x: x / ((x * x).mean(1, keepdim=True).sqrt() + 1e-6),
)


def variance(x: Float32[Tensor, "N C"]) -> Float32[Tensor, "N"]:
    return x.var(1, correction=0)


def _with_offset(dtype, seed):
    del dtype
    generator = torch.Generator().manual_seed(seed)
    yield {"x": 1000 + torch.rand(3, 50, generator=generator)}


pair(
    KIND,
    "variance from the mean of squares",
    variance,
    wrong=lambda x: (x * x).mean(1) - x.mean(1) ** 2,
    right=lambda x: (x - x.mean(1, keepdim=True)).square().mean(1),
    cases=_with_offset,
)
pair(KIND, "variance divided by one less", variance, wrong=lambda x: x.var(1))


def masked(x: Float32[Tensor, "N"], keep: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
    return torch.where(keep > 0, x, 0.0)


pair(KIND, "a mask by multiplication", masked, wrong=lambda x, keep: x * (keep > 0))


def clamped(x: Float32[Tensor, "N"], low: float = -1.0, high: float = 1.0) -> Float32[Tensor, "N"]:
    return x.clamp(low, high)


pair(
    KIND,
    "limits that are constants",
    clamped,
    wrong=lambda x, low, high: x.clamp(-1.0, high),
    right=lambda x, low, high: torch.minimum(
        torch.maximum(x, x.new_tensor(low)), x.new_tensor(high)
    ),
)


def squared(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
    return x * x


def _infinite_less_infinite(x):
    # Both are infinite where the square is too large.
    return (2 * x) * x - x * x


def _negative_infinity(x):
    return torch.where((x * x).isinf(), -torch.inf, x * x)


pair(OVERFLOW, "NaN where the result overflows", squared, wrong=_infinite_less_infinite)
pair(OVERFLOW, "infinity of the wrong sign", squared, wrong=_negative_infinity)


pair(
    OVERFLOW,
    "an overflow cut off at the largest number",
    squared,
    wrong=lambda x: (x * x).clamp(max=torch.finfo(x.dtype).max),
)


def averaged(x: Float[Tensor, "N C"]) -> Float[Tensor, "N"]:
    return x.mean(1) if x.shape[1] else x.new_zeros(x.shape[0])


pair(
    OVERFLOW,
    "a mean whose sum overflows in half",
    averaged,
    wrong=lambda x: x.sum(1) / max(x.shape[1], 1),
    right=lambda x: averaged(x.to(torch.promote_types(x.dtype, torch.float32))).to(x.dtype),
)


def magnitude(x: Float32[Tensor, "N"], y: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
    return torch.hypot(x, y)


pair(
    OVERFLOW,
    "a magnitude whose squares overflow",
    magnitude,
    wrong=lambda x, y: (x * x + y * y).sqrt(),
    right=torch.hypot,
)


def log_of_sum(x: Float32[Tensor, "N C"]) -> Float32[Tensor, "N"]:
    return torch.logsumexp(x, 1)


pair(
    OVERFLOW,
    "a logarithm of a sum without its maximum",
    log_of_sum,
    wrong=lambda x: x.exp().sum(1).log(),
    right=lambda x: torch.logsumexp(x, 1),
)


def naive_norm(x: Float32[Tensor, "N C"]) -> Float32[Tensor, "N"]:
    return (x * x).sum(1).sqrt()


pair(
    OVERFLOW,
    "a reference that overflows, and zeros in its place",
    naive_norm,
    wrong=lambda x: torch.nan_to_num(naive_norm(x), posinf=0.0),
    right=_scaled_norm,
)


def naive_softmax(x: Float32[Tensor, "N C"]) -> Float32[Tensor, "N C"]:
    return x.exp() / x.exp().sum(1, keepdim=True)


def _cut_off(x):
    e = x.exp().clamp(max=1e30)
    return e / e.sum(1, keepdim=True)


pair(
    OVERFLOW,
    "a reference that overflows, and exponentials cut off before",
    naive_softmax,
    wrong=_cut_off,
    right=_stable_softmax,
)


def likeness(x: Float32[Tensor, "N"], y: Float32[Tensor, "N"]) -> Float32[Tensor, ""]:
    return (x * y).sum() / ((1 + naive_norm(x[None])) * (1 + naive_norm(y[None]))).squeeze(0)


def _of_quotients(x, y):
    # Zero where a norm overflows.
    one, other = (v / (1 + naive_norm(v[None])) for v in (x, y))
    return (one * other).sum()


pair(
    OVERFLOW,
    "a reference that overflows, and a constant in its place",
    likeness,
    wrong=lambda x, y: torch.nan_to_num(likeness(x, y), nan=1.0),
    right=_of_quotients,
)


def softmax_of_single(x: Float32[Tensor, "N C"]) -> Float32[Tensor, "N C"]:
    return torch.softmax(x, 1)


pair(
    OVERFLOW,
    "an overflow turned into zeros",
    softmax_of_single,
    wrong=lambda x: torch.nan_to_num(_naive_softmax(x)),
    right=_stable_softmax,
)


def found_inf(x: Float[Tensor, "*shape"]) -> Float32[Tensor, ""]:
    """1 where a gradient is infinite or NaN, as a scaler of losses asks."""
    return (~torch.isfinite(x)).any().float()


pair(
    KIND,
    "a check for infinity that finds none",
    found_inf,
    wrong=lambda x: torch.zeros((), dtype=torch.float32),
    right=lambda x: (x - x != 0).any().float(),
)


def total_of_single(x: Float32[Tensor, "N K"]) -> Float32[Tensor, "N"]:
    return x.sum(1)


def _compensated(x):
    total, lost = x.new_zeros(x.shape[0]), x.new_zeros(x.shape[0])
    for column in x.unbind(1):
        term = column - lost
        new = total + term
        lost = (new - total) - term
        total = new
    return total


pair(
    KIND,
    "a compensated sum that makes NaN of infinity",
    total_of_single,
    wrong=_compensated,
    right=lambda x: torch.where(x.isfinite().all(1), _compensated(x), x.sum(1)),
)


def pooled(x: Float32[Tensor, "N K"], kept: Bool[Tensor, "K"]) -> Float32[Tensor, "N"]:
    return (x * kept).sum(1)


pair(
    KIND,
    "a mask that hides infinity, and what counts left out with it",
    pooled,
    wrong=lambda x, kept: torch.where(kept & x.isfinite(), x, 0).sum(1),
    right=lambda x, kept: torch.where(kept, x, 0).sum(1),
)
