"""The function that BEVDet's users call, on top of the operator."""

from torch import Tensor

from gallery.bev_pool_v2.bev_pool_v2 import bev_pool_v2 as operator
from opsmith import ArgumentError


def bev_pool_v2(
    depth: Tensor,
    feat: Tensor,
    ranks_depth: Tensor,
    ranks_feat: Tensor,
    ranks_bev: Tensor,
    bev_feat_shape: tuple[int, int, int, int, int],
    interval_starts: Tensor,
    interval_lengths: Tensor,
) -> Tensor:
    """Pool with the published argument order and channels first.

    Args:
        depth: (B, N, D, H, W).
        feat: (B, N, H, W, C).
        ranks_depth: (P,) int32; this and the following as `bev::bev_pool_v2` has them.
        ranks_feat: (P,) int32.
        ranks_bev: (P,) int32.
        bev_feat_shape: (B, Z, Y, X, C).
        interval_starts: (I,) int32.
        interval_lengths: (I,) int32.

    Returns:
        (B, C, Z, Y, X), contiguous.

    Raises:
        ArgumentError: `bev_feat_shape` names another B or C than `feat` has.
    """
    batch, *bev_size, channels = bev_feat_shape
    if (batch, channels) != (feat.shape[0], feat.shape[-1]):
        raise ArgumentError(
            f"bev_pool_v2: bev_feat_shape is {tuple(bev_feat_shape)}, with B={batch} and "
            f"C={channels}, but feat has B={feat.shape[0]} and C={feat.shape[-1]}."
        )
    pooled = operator(
        depth,
        feat,
        ranks_depth,
        ranks_feat,
        ranks_bev,
        interval_starts,
        interval_lengths,
        bev_size,
    )
    return pooled.permute(0, 4, 1, 2, 3).contiguous()
