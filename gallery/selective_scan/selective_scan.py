"""`ssm::selective_scan`: the state-space model of Mamba, whose steps the input decides."""

from collections.abc import Iterator
from typing import Annotated, Any

import torch
from jaxtyping import Float, Float32, Float64
from torch import Tensor

import opsmith
from opsmith import Unspecified

#: What sums are taken in. A, D and the bias come in it: they are small, and their digits count.
Wide = opsmith.DtypeVar("Wide", Float32, Float64)
#: Beyond it the softplus of a number is the number, in float64 too.
THRESHOLD = 40


@opsmith.op(
    "ssm::selective_scan",
    parallel_dims=("batch",),
    batch_invariant=("batch",),
    where=("channels % groups == 0",),
)
def selective_scan(
    u: Annotated[Float[Tensor, "batch channels length"], Unspecified(inf=True)],
    delta: Annotated[Float[Tensor, "batch channels length"], Unspecified(inf=True)],
    A: Annotated[Wide[Tensor, "channels state"], Unspecified(inf=True)],
    B: Annotated[Float[Tensor, "batch groups state length"], Unspecified(inf=True)],
    C: Float[Tensor, "batch groups state length"],
    D: Wide[Tensor, "channels"] | None = None,
    z: Float[Tensor, "batch channels length"] | None = None,
    delta_bias: Annotated[Wide[Tensor, "channels"], Unspecified(inf=True)] | None = None,
    delta_softplus: bool = False,
) -> tuple[Float[Tensor, "batch channels length"], Wide[Tensor, "batch channels state"]]:
    """Run a linear recurrence over each channel, with steps, inputs and outputs that vary.

    The state h of a channel begins as zeros, and in step t

        h = exp(step * A) * h + step * B[t] * u[t]
        y[t] = C[t] @ h + D * u[t]

    A device composes the steps: of infinite numbers, their order decides which become NaN.

    Args:
        u: what comes in.
        delta: the size of each step, before the bias and the softplus.
        A: how fast each element of a channel's state decays, if it is negative.
        B: how an input enters the state; ``channels // groups`` neighbouring channels share it.
        C: how the state is read, shared alike.
        D: the part of the input that passes by the state.
        z: a gate: the result is multiplied by ``silu(z)``.
        delta_bias: what is added to the steps of each channel.
        delta_softplus: whether a step is ``softplus(delta + delta_bias)``.

    Returns:
        The gated outputs, and the state after the last step.

    Source:
        Gu and Dao 2023, Mamba (arXiv:2312.00752), section 3. ``selective_scan_fn`` of ``mamba_ssm``
        has the same arguments.
    """
    steps = _steps(delta, delta_bias, delta_softplus)
    _, states, out = _scanned(steps, _wide(u), A, _of_channels(B, u), _of_channels(C, u), D)
    if z is not None:
        out = out * torch.nn.functional.silu(_wide(z))
    return out.to(u.dtype), states[..., -1].clone()


@opsmith.op("ssm::selective_scan_backward", where=("channels % groups == 0",))
def selective_scan_backward(
    grad_out0: Annotated[Float[Tensor, "batch channels length"], Unspecified(inf=True)],
    grad_out1: Annotated[Wide[Tensor, "batch channels state"], Unspecified(inf=True)],
    u: Annotated[Float[Tensor, "batch channels length"], Unspecified(inf=True)],
    delta: Annotated[Float[Tensor, "batch channels length"], Unspecified(inf=True)],
    A: Annotated[Wide[Tensor, "channels state"], Unspecified(inf=True)],
    B: Annotated[Float[Tensor, "batch groups state length"], Unspecified(inf=True)],
    C: Annotated[Float[Tensor, "batch groups state length"], Unspecified(inf=True)],
    D: Wide[Tensor, "channels"] | None = None,
    z: Annotated[Float[Tensor, "batch channels length"], Unspecified(inf=True)] | None = None,
    delta_bias: Annotated[Wide[Tensor, "channels"], Unspecified(inf=True)] | None = None,
    delta_softplus: bool = False,
) -> tuple[
    Float[Tensor, "batch channels length"],
    Float[Tensor, "batch channels length"],
    Wide[Tensor, "channels state"],
    Float[Tensor, "batch groups state length"],
    Float[Tensor, "batch groups state length"],
    Wide[Tensor, "channels"],
    Float[Tensor, "batch channels length"],
    Wide[Tensor, "channels"],
]:
    """Give the gradients of `selective_scan`.

    Args:
        grad_out0: the gradient of the outputs.
        grad_out1: the gradient of the last state.
        u: as `selective_scan` has it, and so the others.
        delta: see `u`.
        A: see `u`.
        B: see `u`.
        C: see `u`.
        D: see `u`.
        z: see `u`.
        delta_bias: see `u`.
        delta_softplus: see `u`.

    Returns:
        The gradients of the tensors, in their order: zeros of those that are not there.
    """
    raw = _raw_steps(delta, delta_bias)
    steps = _steps(delta, delta_bias, delta_softplus)
    grad, wide = _wide(grad_out0), _wide(u)
    b, c = _of_channels(B, u), _of_channels(C, u)
    rates, states, y = _scanned(steps, wide, A, b, c, D)
    of_z = torch.zeros_like(u)
    if z is not None:
        gate = _wide(z)
        open_ = gate.sigmoid()
        of_z = grad * y * open_ * (1 + gate * (1 - open_))
        grad = grad * gate * open_
    of_y = grad.unsqueeze(2) * c
    # The gradient of each state, and what it hands on to the one before.
    slopes, carried = [], grad_out1
    for rate, slope in zip(reversed(rates.unbind(-1)), reversed(of_y.unbind(-1)), strict=True):
        slopes.append(slope + carried)
        carried = slopes[-1] * rate
    slope = torch.stack(slopes[::-1], -1) if slopes else of_y
    decay = slope * rates * states[..., :-1]
    of_inputs = (slope * b).sum(2)
    of_steps = (decay * A.unsqueeze(-1)).sum(2) + of_inputs * wide
    if delta_softplus:
        of_steps = of_steps * torch.where(raw > THRESHOLD, 1, raw.sigmoid())
    of_u = of_inputs * steps + (0 if D is None else D.unsqueeze(1) * grad)
    of_a = (decay * steps.unsqueeze(2)).sum((0, 3))
    of_b = _of_groups(slope * (steps * wide).unsqueeze(2), B)
    of_c = _of_groups(grad.unsqueeze(2) * states[..., 1:], C)
    of_d = A.new_zeros(A.shape[0]) if D is None else (grad * wide).sum((0, 2))
    of_bias = torch.zeros_like(of_d) if delta_bias is None else of_steps.sum((0, 2))
    gradients = (of_u, of_steps, of_a, of_b, of_c, of_d, of_z, of_bias)
    likes = (u, delta, A, B, C, A, u, A)
    return tuple(one.to(like.dtype) for one, like in zip(gradients, likes, strict=True))


def _wide(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))


def _raw_steps(delta: Tensor, delta_bias: Tensor | None) -> Tensor:
    return _wide(delta) if delta_bias is None else _wide(delta) + delta_bias.unsqueeze(1)


def _steps(delta: Tensor, delta_bias: Tensor | None, delta_softplus: bool) -> Tensor:
    """Give the size of each step (batch, channels, length)."""
    raw = _raw_steps(delta, delta_bias)
    return torch.nn.functional.softplus(raw, threshold=THRESHOLD) if delta_softplus else raw


def _of_channels(x: Tensor, u: Tensor) -> Tensor:
    """Give each channel what its group has: (batch, channels, state, length)."""
    return _wide(x).repeat_interleave(u.shape[1] // x.shape[1], dim=1)


def _of_groups(x: Tensor, like: Tensor) -> Tensor:
    """Add up what the channels of each group have."""
    groups = like.shape[1]
    return x.unflatten(1, (groups, x.shape[1] // groups)).sum(2)


def _scanned(
    steps: Tensor, u: Tensor, A: Tensor, B: Tensor, C: Tensor, D: Tensor | None
) -> tuple[Tensor, Tensor, Tensor]:
    """Give what is left of the state in each step, all states from the zeros on, and y."""
    rates = (steps.unsqueeze(2) * A.unsqueeze(-1)).exp()
    inputs = (steps * u).unsqueeze(2) * B
    states = [torch.zeros_like(A).expand(u.shape[0], -1, -1)]
    for rate, entering in zip(rates.unbind(-1), inputs.unbind(-1), strict=True):
        states.append(rate * states[-1] + entering)
    found = torch.stack(states, -1)
    y = (C * found[..., 1:]).sum(2)
    return rates, found, y if D is None else y + D.unsqueeze(1) * u


# GCC makes vectors of loops with `exp_of` where no comparison of floats may trap.
FLAGS = ("-fno-trapping-math",)
for _operator in (selective_scan, selective_scan_backward):
    _operator.register_kernel("cpu", source="selective_scan.cpp", flags=FLAGS)
    _operator.register_kernel("cuda", source="selective_scan.cu")
selective_scan.register_backward(
    selective_scan_backward,
    grads=dict(zip(("u", "delta", "A", "B", "C", "D", "z", "delta_bias"), range(8), strict=True)),
)


def _case(
    dtype: dict[str, torch.dtype],
    generator: torch.Generator,
    sizes: tuple[int, int, int, int, int],
    gated: bool,
    softplus: bool,
) -> dict[str, Any]:
    """Give arguments as Mamba has them; `sizes` are batch, channels, groups, state and length."""
    batch, channels, groups, state, length = sizes

    def normal(which: str, *shape: int) -> Tensor:
        return torch.randn(shape, generator=generator).to(dtype[which])

    case: dict[str, Any] = {
        "u": normal("Float", batch, channels, length),
        "delta": normal("Float", batch, channels, length),
        "A": -normal("Wide", channels, state).exp(),
        "B": normal("Float", batch, groups, state, length),
        "C": normal("Float", batch, groups, state, length),
    }
    if gated:
        case["D"] = normal("Wide", channels)
        case["z"] = normal("Float", batch, channels, length)
        case["delta_bias"] = normal("Wide", channels)
    if not softplus:
        case["delta"] = case["delta"].abs()
    return {**case, "delta_softplus": softplus}


@selective_scan.register_cases
def _cases(dtype: dict[str, torch.dtype], seed: int) -> Iterator[dict[str, Any]]:
    generator = torch.Generator().manual_seed(seed)
    # Fewer channels than a vector has lanes, more than one part of them; several groups, also of
    # one channel; more steps than a tile; a state of one element, and of as many as Mamba's; no
    # steps, no state, no channels.
    for sizes in (
        (2, 3, 1, 4, 5),
        (2, 10, 2, 3, 70),
        (1, 4, 4, 1, 9),
        (1, 70, 1, 2, 7),
        (1, 2, 1, 16, 300),
        (2, 3, 1, 4, 0),
        (1, 3, 1, 0, 6),
        (2, 0, 1, 2, 3),
    ):
        yield _case(dtype, generator, sizes, gated=True, softplus=True)
        yield _case(dtype, generator, sizes, gated=False, softplus=False)
    # Steps that the softplus leaves as they are, and steps that it makes nearly none of.
    case = _case(dtype, generator, (1, 3, 1, 2, 12), gated=True, softplus=True)
    yield case | {"delta": case["delta"] * 30}


@selective_scan_backward.register_cases
def _backward_cases(dtype: dict[str, torch.dtype], seed: int) -> Iterator[dict[str, Any]]:
    generator = torch.Generator().manual_seed(seed + 1)
    for case in _cases(dtype, seed):
        results = selective_scan.reference(**case)
        grads = [torch.randn(one.shape, generator=generator).to(one.dtype) for one in results]
        yield {"grad_out0": grads[0], "grad_out1": grads[1], **case}
