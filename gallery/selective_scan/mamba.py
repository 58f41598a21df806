"""The scan as `mamba_ssm` has it, for models that call it so."""

from torch import Tensor

from .selective_scan import selective_scan


def selective_scan_fn(
    u: Tensor,
    delta: Tensor,
    A: Tensor,
    B: Tensor,
    C: Tensor,
    D: Tensor | None = None,
    z: Tensor | None = None,
    delta_bias: Tensor | None = None,
    delta_softplus: bool = False,
    return_last_state: bool = False,
) -> Tensor | tuple[Tensor, Tensor]:
    """Call `selective_scan` with the arguments of ``selective_scan_fn`` of ``mamba_ssm``.

    Args:
        u: as `selective_scan` has it, and so the others.
        B: (batch, state, length) too, where all channels share it.
        C: as `B`.
        return_last_state: whether the state after the last step is returned as well.

    Returns:
        The outputs, or a pair of them and of the last state.
    """
    B, C = (one.unsqueeze(1) if one.dim() == 3 else one for one in (B, C))
    out, last = selective_scan(u, delta, A, B, C, D, z, delta_bias, delta_softplus)
    return (out, last) if return_last_state else out
