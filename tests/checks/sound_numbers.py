"""Right operators whose numbers are delicate: they cancel, jump, tie or overflow."""

from collections.abc import Iterator
from typing import Annotated, Any

import torch
from jaxtyping import Complex, Float, Float32, Int8, Int64
from torch import Tensor

import opsmith
from opsmith import Between, Index

OPERATORS: list[opsmith.Operator] = []


def sound(operator: opsmith.Operator) -> opsmith.Operator:
    OPERATORS.append(operator)
    return operator


def wide(x: Tensor) -> Tensor:
    """What a careful kernel computes in."""
    return x.to(torch.promote_types(x.dtype, torch.float32))


@sound
@opsmith.op("sound::rms_norm_backward")
def rms_norm_backward(
    grad: Float[Tensor, "N C"], x: Float[Tensor, "N C"], weight: Float[Tensor, "C"]
) -> tuple[Float[Tensor, "N C"], Float[Tensor, "C"]]:
    inverse = torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6)
    scaled = grad * weight
    inner = (scaled * x).mean(-1, keepdim=True)
    # With one column both terms are equal but for the 1e-6.
    return inverse * scaled - inverse**3 * inner * x, (grad * x * inverse).sum(0)


@rms_norm_backward.register_kernel("cpu")
def _(grad: Tensor, x: Tensor, weight: Tensor) -> tuple[Tensor, Tensor]:
    g, v, w = wide(grad), wide(x), wide(weight)
    inverse = 1 / torch.sqrt((v * v).sum(-1, keepdim=True) / max(v.shape[1], 1) + 1e-6)
    normed = v * inverse
    inner = (g * w * normed).sum(-1, keepdim=True) / max(v.shape[1], 1)
    return (inverse * (g * w - normed * inner)).to(x.dtype), (g * normed).sum(0).to(x.dtype)


@sound
@opsmith.op("sound::rms_norm")
def rms_norm(x: Float[Tensor, "N C"], weight: Float[Tensor, "C"]) -> Float[Tensor, "N C"]:
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-6) * weight


@rms_norm.register_kernel("cpu")
def _(x: Tensor, weight: Tensor) -> Tensor:
    v = wide(x)
    mean = (v * v).sum(-1, keepdim=True) / max(v.shape[1], 1)
    return (v / torch.sqrt(mean + 1e-6) * weight).to(x.dtype)


def _save(ctx: Any, inputs: Any, output: Any) -> None:
    ctx.save_for_backward(*inputs)


@rms_norm.register_autograd(setup_context=_save)
def _(ctx: Any, grad: Tensor) -> tuple[Tensor, Tensor]:
    return rms_norm_backward(grad, *ctx.saved_tensors)


@sound
@opsmith.op("sound::layer_norm", autograd="reference")
def layer_norm(
    x: Float[Tensor, "*batch C"], weight: Float[Tensor, "C"], bias: Float[Tensor, "C"]
) -> Float[Tensor, "*batch C"]:
    return torch.nn.functional.layer_norm(x, x.shape[-1:], weight, bias)


@layer_norm.register_kernel("cpu")
def _(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    v = wide(x)
    centred = v - v.mean(-1, keepdim=True)
    variance = (centred * centred).mean(-1, keepdim=True)
    return (centred / torch.sqrt(variance + 1e-5) * weight + bias).to(x.dtype)


@sound
@opsmith.op("sound::softmax", autograd="reference", parallel_dims=("N",))
def softmax(x: Float[Tensor, "N C"]) -> Float[Tensor, "N C"]:
    return x.softmax(-1)


@softmax.register_kernel("cpu")
def _(x: Tensor) -> Tensor:
    # One pass, rescaling when a larger element comes.
    v = wide(x)
    largest = v.new_full((v.shape[0], 1), -torch.inf)
    total = torch.zeros_like(largest)
    for column in v.split(1, 1):
        now = torch.maximum(largest, column)
        shift = torch.where(now == -torch.inf, 0.0, now)
        total = total * torch.exp(largest - shift) + torch.exp(column - shift)
        largest = now
    shift = torch.where(largest == -torch.inf, 0.0, largest)
    return (torch.exp(v - shift) / total).to(x.dtype)


@softmax.register_cases
def _(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    inf, nan = torch.inf, torch.nan
    yield {"x": torch.tensor([[0.0, 1, nan], [-inf, 1, 2], [-inf, -inf, -inf]], dtype=dtype)}
    yield {"x": torch.tensor([[inf, 1.0], [300, -300], [2, 2]], dtype=dtype)}


@sound
@opsmith.op("sound::relu", parallel_dims=("*shape",))
def relu(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
    return x.relu()


@relu.register_autograd(setup_context=_save)
def _(ctx: Any, grad: Tensor) -> Tensor:
    # At 0 the other side's slope, which is as right.
    return grad * (ctx.saved_tensors[0] >= 0)


@relu.register_cases
def _(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    yield {"x": torch.tensor([0.0, -0.0, 1.0, -1.0], dtype=dtype)}
    yield {"x": torch.tensor([torch.inf, -torch.inf, torch.nan, 2.0], dtype=dtype)}


@sound
@opsmith.op("sound::maximum", autograd="reference")
def maximum(x: Float[Tensor, "N"], y: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    return torch.maximum(x, y)


@maximum.register_cases
def _(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    x = torch.tensor([0.0, 1.0, 2.0, torch.nan, -torch.inf], dtype=dtype)
    yield {"x": x, "y": x.clone()}
    yield {"x": x, "y": x.flip(0)}


@sound
@opsmith.op("sound::huber", autograd="reference")
def huber(x: Float[Tensor, "N"], y: Float[Tensor, "N"]) -> Float[Tensor, ""]:
    return torch.nn.functional.huber_loss(x, y, reduction="sum")


@sound
@opsmith.op("sound::median")
def median(x: Float[Tensor, "N C"]) -> Float[Tensor, "N"]:
    return x.median(1).values


@median.register_kernel("cpu")
def _(x: Tensor) -> Tensor:
    if not x.shape[1]:
        raise ValueError("median of nothing")
    found = x.contiguous().sort(1).values[:, (x.shape[1] - 1) // 2]
    return torch.where(x.isnan().any(1), torch.nan, found)


@median.register_cases
def _(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    yield {"x": torch.tensor([[1.0, 2, 2, 1], [0.0, -0.0, 0, 0]], dtype=dtype)}
    yield {"x": torch.tensor([[1.0, torch.nan, 2], [torch.inf, 0, -torch.inf]], dtype=dtype)}


@sound
@opsmith.op("sound::ranked", autograd="reference")
def ranked(x: Float[Tensor, "N C"]) -> tuple[Float[Tensor, "N C"], Int64[Tensor, "N C"]]:
    return x.sort(dim=1, stable=True)


@ranked.register_cases
def _(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    yield {"x": torch.tensor([[2.0, 1, 2, 1], [3.0, 3, 3, 3]], dtype=dtype)}


@sound
@opsmith.op("sound::linear", autograd="reference")
def linear(x: Float[Tensor, "N K"], w: Float[Tensor, "M K"]) -> Float[Tensor, "N M"]:
    return x @ w.T


@sound
@opsmith.op("sound::logsumexp", autograd="reference", parallel_dims=("N",))
def logsumexp(x: Float[Tensor, "N C"]) -> Float[Tensor, "N"]:
    return x.logsumexp(1)


@logsumexp.register_kernel("cpu")
def _(x: Tensor) -> Tensor:
    v = wide(x)
    if not x.shape[1]:
        return x.new_full((x.shape[0],), -torch.inf)
    # Infinity less infinity is NaN.
    top = v.amax(1, keepdim=True).nan_to_num(0.0, 0.0, 0.0)
    return (top + (v - top).exp().sum(1, keepdim=True).log()).squeeze(1).to(x.dtype)


@sound
@opsmith.op("sound::variance", autograd="reference")
def variance(x: Float[Tensor, "N C"]) -> Float[Tensor, "N"]:
    return ((x - x.mean(1, keepdim=True)) ** 2).mean(1)


@variance.register_kernel("cpu")
def _(x: Tensor) -> Tensor:
    # Welford's update.
    v = wide(x)
    mean = v.new_zeros(v.shape[0])
    squares = v.new_zeros(v.shape[0])
    for count, column in enumerate(v.unbind(1), 1):
        delta = column - mean
        mean = mean + delta / count
        squares = squares + delta * (column - mean)
    return (squares / v.shape[1] if v.shape[1] else mean + torch.nan).to(x.dtype)


@sound
@opsmith.op("sound::powers", autograd="reference")
def powers(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    # From 1e-40 to beyond what half precision holds.
    return torch.exp(20 * x)


@powers.register_kernel("cpu")
def _(x: Tensor) -> Tensor:
    return torch.exp(wide(x) * 20).to(x.dtype)


@sound
@opsmith.op("sound::arcsine", autograd="reference")
def arcsine(x: Annotated[Float[Tensor, "N"], Between(-1, 1)]) -> Float[Tensor, "N"]:
    return torch.asin(x)


@arcsine.register_cases
def _(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    # The ends, beyond which no finite difference can step.
    yield {"x": torch.tensor([-1.0, 0.0, 1.0], dtype=dtype)}


@sound
@opsmith.op("sound::scaled_by_single", autograd="reference")
def scaled_by_single(
    x: Float[Tensor, "N C"], scale: Float32[Tensor, "C"], shift: Float32[Tensor, "C"]
) -> tuple[Float[Tensor, "N C"], Float32[Tensor, "C"]]:
    return (x * scale + shift).to(x.dtype), scale * scale


@sound
@opsmith.op("sound::round_to_int8")
def round_to_int8(
    x: Float[Tensor, "N"], scale: Annotated[float, Between(0.25, 2)]
) -> Int8[Tensor, "N"]:
    return (x / scale).round().clamp(-128, 127).to(torch.int8)


@sound
@opsmith.op("sound::dropout", autograd="reference")
def dropout(x: Float[Tensor, "N C"], seed: int = 0) -> Float[Tensor, "N C"]:
    # No generator: which elements are dropped follows from their numbers and the seed.
    numbers = torch.arange(x.numel(), device=x.device).view(x.shape)
    mixed = (numbers * 2654435761 + seed * 40503 + 12345) % 4294967296
    mixed = (mixed ^ (mixed >> 15)) * 2246822519 % 4294967296
    return torch.where(mixed % 4 == 0, 0.0, x / 0.75)


@sound
@opsmith.op("sound::conjugated", autograd="reference")
def conjugated(z: Complex[Tensor, "N"], w: Complex[Tensor, "N"]) -> Complex[Tensor, "N"]:
    # A view that is conjugated when somebody reads it.
    return (z * w).conj()


@sound
@opsmith.op("sound::spectrum", autograd="reference")
def spectrum(z: Complex[Tensor, "N C"]) -> tuple[Complex[Tensor, "N C"], Complex[Tensor, "N"]]:
    return torch.fft.fft(z, dim=1) if z.shape[1] else z.clone(), (z * z.conj()).sum(1)


@sound
@opsmith.op("sound::weighted_products")
def weighted_products(
    x: Annotated[Float[Tensor, "E C"], Between(-9, 9)],
    weight: Annotated[Float[Tensor, "K C"], Between(-9, 9)],
    share: Annotated[Float[Tensor, "E S"], Between(-9, 9)],
    which: Annotated[Int64[Tensor, "E S"], Index("K")],
) -> Float[Tensor, "E"]:
    chosen = weight.index_select(0, which.flatten()).reshape(*which.shape, x.shape[1])
    return torch.einsum("es,ec,esc->e", share, x, chosen)


@weighted_products.register_kernel("cpu")
def _(x: Tensor, weight: Tensor, share: Tensor, which: Tensor) -> Tensor:
    chosen = wide(weight).index_select(0, which.flatten()).reshape(*which.shape, x.shape[1])
    # The reference rounds products of the same rows alike. Where one is next to nothing, and so are
    # its shares together, the sum of all terms is further off.
    terms = chosen * (wide(share)[:, :, None] * wide(x)[:, None, :])
    return terms.flatten(1).sum(1).to(x.dtype)


@weighted_products.register_cases
def _(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    generator = torch.Generator().manual_seed(seed)
    x, weight = (torch.randn(rows, 9, generator=generator) for rows in (512, 1))
    x -= (x @ weight.T) / (weight * weight).sum() * weight * 0.999
    share = torch.randn(512, 1, generator=generator)
    which = torch.zeros(512, 2, dtype=torch.int64)
    yield {
        "x": x.to(dtype),
        "weight": weight.to(dtype),
        "share": torch.cat([share, 1e-3 - share], 1).to(dtype),
        "which": which,
    }


@sound
@opsmith.op("sound::log_cosh", autograd="reference")
def log_cosh(x: Float[Tensor, "*s"], y: Float[Tensor, "*s"]) -> Float[Tensor, ""]:
    # Autograd takes the second derivative of abs at 0 for 0, and this one's is 1 there.
    away = (x - y).abs()
    return (away + torch.log1p(torch.exp(-2 * away)) - 0.6931471805599453).mean()


@log_cosh.register_kernel("cpu")
def _(x: Tensor, y: Tensor) -> Tensor:
    away = (wide(x) - wide(y)).abs()
    softened = torch.nn.functional.softplus(-2 * away)
    return (away + softened - 0.6931471805599453).mean().to(x.dtype)


@log_cosh.register_cases
def _(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    x = torch.randn(3, dtype=dtype)
    yield {"x": x, "y": x.clone()}


@sound
@opsmith.op("sound::straight_through", autograd="reference")
def straight_through(x: Annotated[Float[Tensor, "N"], Between(-8, 8)]) -> Float[Tensor, "N"]:
    # Its gradient is 1, as its author says, and not its slope.
    return x + (torch.tanh(3 * x) - x).detach()


@straight_through.register_kernel("cpu")
def _(x: Tensor) -> Tensor:
    return torch.tanh(3 * wide(x)).to(x.dtype)


@sound
@opsmith.op("sound::gate")
def gate(x: Float32[Tensor, "N K"], weight: Float32[Tensor, "K"]) -> Float32[Tensor, "N"]:
    return torch.tanh((x * weight).sum(1))


@gate.register_cases
def _(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    yield {"x": torch.full((2, 3), 1e20), "weight": torch.tensor([1e20, 1.0, -3e20])}


@gate.register_kernel("cpu")
def _(x: Tensor, weight: Tensor) -> Tensor:
    # As fused multiplications and additions have it: a sum that was too large once stays so, though
    # what follows would have made it negative.
    total = torch.zeros(x.shape[0])
    for column, factor in zip(x.double().unbind(1), weight.double(), strict=True):
        total = (total.double() + column * factor).float()
    return torch.tanh(total)
