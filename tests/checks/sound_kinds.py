"""Right operators of kinds that are rare among the others, each as a stranger would write it.

Views that are written, complex numbers, integer results, optional arguments, ragged lists, tensors
without dimensions, masks, channels last, sizes that data decide, random numbers, packed bytes.
"""

from collections.abc import Iterator
from typing import Annotated, Any, Literal

import torch
from jaxtyping import Bool, Complex, Float, Float32, Int32, Int64, UInt8
from torch import Tensor

import opsmith
from opsmith import Between, NonDifferentiable, Positive, Selects, Sorted, philox

OPERATORS: list[opsmith.Operator] = []


def sound(operator: opsmith.Operator) -> opsmith.Operator:
    OPERATORS.append(operator)
    return operator


# --- written in place -----------------------------------------------------------------------------


@sound
@opsmith.op("kinds::clip_rows", mutates_args=("x",))
def clip_rows(
    x: Float[Tensor, "N C"], most: Annotated[float, Positive()] = 1.0
) -> Float[Tensor, "N"]:
    """Shorten rows that are longer than `most`, in place; give the lengths that they had."""
    norms = x.norm(dim=1)
    x.mul_((most / norms.clamp_min(1e-12)).clamp_max(1)[:, None])
    return norms


@clip_rows.register_kernel("cpu")
def _(x: Tensor, most: float = 1.0) -> Tensor:
    wide = x.double() if x.dtype == torch.float64 else x.float()
    norms = torch.linalg.vector_norm(wide, dim=1)
    for row, norm in zip(x, norms.tolist(), strict=True):
        if not norm <= most:  # each row is a view of the argument
            row *= most / norm
    return norms.to(x.dtype)


@sound
@opsmith.op("kinds::push", mutates_args=("ring", "head"), where=("B <= S",))
def push(
    ring: Float[Tensor, "S C"],
    head: Annotated[Int64[Tensor, ""], Between(0, "S-1")],
    batch: Float[Tensor, "B C"],
) -> None:
    """Write a batch into a ring behind its head, and move the head."""
    rows = (torch.arange(batch.shape[0]) + head) % ring.shape[0]
    ring[rows] = batch
    head.add_(batch.shape[0]).remainder_(ring.shape[0])


@push.register_kernel("cpu")
def _(ring: Tensor, head: Tensor, batch: Tensor) -> None:
    first, size = int(head), ring.shape[0]
    fits = min(size - first, batch.shape[0])
    ring[first : first + fits] = batch[:fits]
    ring[: batch.shape[0] - fits] = batch[fits:]
    head.fill_((first + batch.shape[0]) % size if size else 0)


# --- complex numbers ------------------------------------------------------------------------------


@sound
@opsmith.op("kinds::rotated", autograd="reference", parallel_dims=("B",))
def rotated(q: Float[Tensor, "B T 2*D"], turns: Complex[Tensor, "T D"]) -> Float[Tensor, "B T 2*D"]:
    """Turn pairs of neighbours by complex numbers, as rotary embeddings do."""
    pairs = torch.view_as_complex(q.reshape(*q.shape[:2], -1, 2).contiguous())
    return torch.view_as_real(pairs * turns).reshape(q.shape)


@rotated.register_kernel("cpu")
def _(q: Tensor, turns: Tensor) -> Tensor:
    out = torch.empty_like(q, memory_format=torch.contiguous_format)
    even, odd = q[..., 0::2], q[..., 1::2]
    out[..., 0::2] = even * turns.real - odd * turns.imag
    out[..., 1::2] = even * turns.imag + odd * turns.real
    return out


# --- results that are integers --------------------------------------------------------------------


@sound
@opsmith.op("kinds::bucket_counts")
def bucket_counts(
    x: Float[Tensor, "N"], edges: Annotated[Float[Tensor, "E"], Sorted(strict=True)]
) -> Int64[Tensor, "E+1"]:
    """Count the values below, between and above edges."""
    place = (x[:, None] >= edges).sum(1)
    return torch.bincount(place, minlength=len(edges) + 1)


bucket_counts.register_kernel("cpu", source="native/bucket_counts.cpp")


@sound
@opsmith.op("kinds::unpacked", parallel_dims=("N",))
def unpacked(x: UInt8[Tensor, "N K"]) -> UInt8[Tensor, "N 2*K"]:
    """The two halves of each byte, the low one first."""
    return torch.stack([x & 15, x >> 4], -1).flatten(1)


unpacked.register_kernel("cpu", source="native/unpacked.cpp")


# --- arguments that may be absent, masks ----------------------------------------------------------


@sound
@opsmith.op("kinds::attend", autograd="reference")
def attend(
    q: Float[Tensor, "B T D"],
    k: Float[Tensor, "B S D"],
    v: Float[Tensor, "B S E"],
    mask: Bool[Tensor, "T S"] | None = None,
    bias: Float[Tensor, "T S"] | None = None,
    scale: float | None = None,
) -> Float[Tensor, "B T E"]:
    """Attention; a place that no mask allows anything gives zeros."""
    by = q.shape[-1] ** -0.5 if scale is None else scale
    scores = q @ k.transpose(1, 2) * by
    if bias is not None:
        scores = scores + bias
    if mask is not None:
        scores = scores.masked_fill(~mask, -torch.inf)
        scores = scores.masked_fill(~mask.any(1, keepdim=True), 0.0)
    weights = scores.softmax(-1)
    if mask is not None:
        weights = weights * mask
    return weights @ v


@attend.register_kernel("cpu")
def _(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    mask: Tensor | None = None,
    bias: Tensor | None = None,
    scale: float | None = None,
) -> Tensor:
    wide = torch.float64 if q.dtype == torch.float64 else torch.float32
    by = q.shape[-1] ** -0.5 if scale is None else scale
    scores = torch.einsum("btd,bsd->bts", q.to(wide), k.to(wide)) * by
    if bias is not None:
        scores += bias
    if mask is not None:
        scores.masked_fill_(~mask, -torch.inf)
    if not scores.shape[-1]:
        return q.new_zeros(*q.shape[:2], v.shape[-1])
    top = scores.amax(-1, keepdim=True)
    parts = torch.exp(scores - torch.where(top == -torch.inf, 0.0, top))
    total = parts.sum(-1, keepdim=True)
    nothing = torch.zeros((), dtype=torch.bool) if mask is None else ~mask.any(1, keepdim=True)
    weights = torch.where(nothing, 0.0, parts / total)
    return (weights @ v.to(wide)).to(q.dtype)


@sound
@opsmith.op("kinds::masked_mean", parallel_dims=("C",))
def masked_mean(x: Float[Tensor, "B T C"], mask: Bool[Tensor, "B T"]) -> Float[Tensor, "B C"]:
    """The mean over the places of a mask; zeros where it has none."""
    kept = torch.where(mask[:, :, None], x, 0.0)
    return kept.sum(1) / mask.sum(1, keepdim=True).clamp_min(1)


masked_mean.register_kernel("cpu", source="native/masked_mean.cpp")


@masked_mean.register_autograd(
    setup_context=lambda ctx, inputs, output: ctx.save_for_backward(inputs[1])
)
def _(ctx: Any, grad: Tensor) -> tuple[Tensor, None]:
    (mask,) = ctx.saved_tensors
    share = mask.to(grad.dtype) / mask.sum(1, keepdim=True).clamp_min(1)
    return share[:, :, None] * grad[:, None], None


# --- lists, and tensors without dimensions --------------------------------------------------------


@sound
@opsmith.op("kinds::packed", data_dependent=("M", "L"))
def packed(xs: list[Float[Tensor, "_ C"]]) -> tuple[Float[Tensor, "M C"], Int64[Tensor, "L"]]:
    """Pack ragged rows into one tensor, with the offsets where they begin and end."""
    sizes = torch.tensor([0, *(len(x) for x in xs)])
    return torch.cat([x.clone() for x in xs]), sizes.cumsum(0)


@packed.register_kernel("cpu")
def _(xs: list[Tensor]) -> tuple[Tensor, Tensor]:
    total = sum(len(x) for x in xs)
    out, offsets = xs[0].new_empty(total, xs[0].shape[1]), [0]
    for x in xs:
        out[offsets[-1] : offsets[-1] + len(x)] = x
        offsets.append(offsets[-1] + len(x))
    return out, torch.tensor(offsets)


@sound
@opsmith.op("kinds::averaged", mutates_args=("count", "mean"))
def averaged(
    count: Annotated[Int64[Tensor, ""], Between(0, 1000)],
    mean: Float[Tensor, ""],
    x: Float[Tensor, ""],
) -> Float[Tensor, ""]:
    """Take one more number into a running mean; give its distance from the mean before."""
    step = x - mean
    count.add_(1)
    mean.add_(step / count)
    return step


@averaged.register_kernel("cpu")
def _(count: Tensor, mean: Tensor, x: Tensor) -> Tensor:
    step = x - mean
    count += 1
    mean.copy_(mean + step / int(count))
    return step


# --- layouts --------------------------------------------------------------------------------------


@sound
@opsmith.op("kinds::group_norm", autograd="reference", where=("groups > 0", "C % groups == 0"))
def group_norm(x: Float32[Tensor, "N C H W"], groups: int = 1) -> Float32[Tensor, "N C H W"]:
    """Normalise groups of channels."""
    return torch.nn.functional.group_norm(x, groups)


# --- sizes that the data decide -------------------------------------------------------------------


@sound
@opsmith.op("kinds::voxels", data_dependent=("M",))
def voxels(
    points: Annotated[Int32[Tensor, "N 3"], Between(-50, 50)],
) -> tuple[Int32[Tensor, "M 3"], Int64[Tensor, "N"], Int64[Tensor, "M"]]:
    """The voxels that points lie in, in order; the voxel of each point; points in each."""
    found, inverse, counts = torch.unique(points, dim=0, return_inverse=True, return_counts=True)
    return found, inverse, counts


@voxels.register_kernel("cpu")
def _(points: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    rows = [tuple(row) for row in points.tolist()]
    order = sorted(set(rows))
    number = {row: place for place, row in enumerate(order)}
    inverse = torch.tensor([number[row] for row in rows], dtype=torch.int64)
    counts = torch.bincount(inverse, minlength=len(order))
    return torch.tensor(order, dtype=torch.int32).reshape(-1, 3), inverse, counts


@sound
@opsmith.op("kinds::suppressed", data_dependent=("K",), where=("N <= 128",))
def suppressed(
    spans: Annotated[Int64[Tensor, "N 2"], Between(0, 40)],
    scores: Annotated[Int64[Tensor, "N"], Between(0, 9)],
    share: Annotated[float, Between(0, 1)] = 0.5,
) -> Int64[Tensor, "K"]:
    """Keep the best of spans that overlap by more than a share of both, the best first."""
    kept: list[int] = []
    for one in scores.argsort(descending=True, stable=True).tolist():
        low, high = spans[one].aminmax()
        for other in kept:
            first, last = spans[other].aminmax()
            both = (torch.minimum(high, last) - torch.maximum(low, first)).clamp_min(0)
            if both > share * ((high - low) + (last - first) - both):
                break
        else:
            kept.append(one)
    return torch.tensor(kept, dtype=torch.int64)


suppressed.register_kernel("cpu", source="native/suppressed.cpp")


# --- random numbers -------------------------------------------------------------------------------


@sound
@opsmith.op("kinds::sampled")
def sampled(
    logits: Float32[Tensor, "N C+1"], rng: opsmith.Philox = None, heat: float = 1.0
) -> Annotated[Int64[Tensor, "N"], Selects(lambda logits, rng, heat: _noisy(logits, rng, heat))]:
    """Draw a class for each row, by the largest of logits with Gumbel noise."""
    return _noisy(logits, rng, heat).argmax(1)


@sampled.register_kernel("cpu")
def _(logits: Tensor, rng: Tensor, heat: float = 1.0) -> Tensor:
    return _noisy(logits.contiguous(), rng, heat).topk(1, dim=1).indices[:, 0]


def _noisy(logits: Tensor, rng: Tensor, heat: float) -> Tensor:
    noise = philox.uniform(rng, logits.shape, dtype=torch.float64)
    return logits - heat * torch.log(-torch.log(noise.clamp(1e-9, 1 - 1e-9))).to(logits.dtype)


# --- choices --------------------------------------------------------------------------------------


@sound
@opsmith.op("kinds::scored", autograd="reference")
def scored(
    x: Float[Tensor, "N C"],
    target: Annotated[Int64[Tensor, "N"], Between(-1, "C-1")],
    weight: Annotated[Float[Tensor, "C"], NonDifferentiable()] | None = None,
    reduction: Literal["none", "sum"] = "none",
) -> Float[Tensor, "N"]:
    """Cross entropy of each row, 0 where the target is -1; `sum` puts the sum in every place."""
    logs = x.log_softmax(1)
    chosen = -logs.gather(1, target.clamp_min(0)[:, None])[:, 0]
    if weight is not None:
        chosen = chosen * weight[target.clamp_min(0)]
    chosen = torch.where(target >= 0, chosen, 0.0)
    return chosen if reduction == "none" else chosen.sum().expand(len(x)).clone()


@scored.register_kernel("cpu")
def _(x: Tensor, target: Tensor, weight: Tensor | None = None, reduction: str = "none") -> Tensor:
    wide = x.double() if x.dtype == torch.float64 else x.float()
    out = torch.zeros(len(x), dtype=wide.dtype)
    for row, at in enumerate(target.tolist()):
        if at >= 0:
            shifted = wide[row] - wide[row].amax()
            out[row] = shifted.exp().sum().log() - shifted[at]
            out[row] *= 1.0 if weight is None else weight[at].to(wide.dtype)
    return (out if reduction == "none" else out.sum().expand(len(x)).clone()).to(x.dtype)


def cases(dtype: torch.dtype, seed: int) -> Iterator[dict[str, Any]]:
    generator = torch.Generator().manual_seed(seed)
    x = torch.randn(2, 6, 5, 4, generator=generator)
    yield {"x": x.contiguous(memory_format=torch.channels_last), "groups": 3}


group_norm.register_cases(cases)


@group_norm.register_kernel("cpu")
def _(x: Tensor, groups: int = 1) -> Tensor:
    # Over pixels, where the channels of a pixel lie side by side.
    pixels = x.permute(0, 2, 3, 1).contiguous()
    parts = pixels.view(x.shape[0], x.shape[2] * x.shape[3], groups, x.shape[1] // groups)
    mean = parts.mean((1, 3), keepdim=True)
    spread = parts.var((1, 3), keepdim=True, unbiased=False)
    done = ((parts - mean) / torch.sqrt(spread + 1e-5)).view(pixels.shape)
    return done.permute(0, 3, 1, 2).contiguous()
