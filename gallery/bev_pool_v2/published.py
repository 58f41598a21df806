"""The function that BEVDet's users call, on top of the operator."""

import torch
from torch import Tensor

from opsmith import ArgumentError

from .bev_pool_v2 import bev_pool_v2 as operator


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
    """Pool with the published argument order and channels first, casting as published.

    Args:
        depth: (B, N, D, H, W).
        feat: (B, N, H, W, C); where its dtype is not that of `depth`, both are promoted.
        ranks_depth: (P,) of any integers, cast to int32; this and the following as
            `bev::bev_pool_v2` has them.
        ranks_feat: (P,), likewise.
        ranks_bev: (P,), likewise.
        bev_feat_shape: (B, Z, Y, X, C).
        interval_starts: (I,), likewise.
        interval_lengths: (I,), likewise.

    Returns:
        (B, C, Z, Y, X), contiguous, in the dtype of `depth` and `feat`.

    Raises:
        ArgumentError: `bev_feat_shape` names another B or C than `feat` has.
    """
    batch, *bev_size, channels = bev_feat_shape
    if (batch, channels) != (feat.shape[0], feat.shape[-1]):
        raise ArgumentError(
            f"bev_pool_v2: bev_feat_shape is {tuple(bev_feat_shape)}, with B={batch} and "
            f"C={channels}, but feat has B={feat.shape[0]} and C={feat.shape[-1]}."
        )
    dtype = torch.promote_types(depth.dtype, feat.dtype)
    pooled = operator(
        depth.to(dtype),
        feat.to(dtype),
        ranks_depth.int(),
        ranks_feat.int(),
        ranks_bev.int(),
        interval_starts.int(),
        interval_lengths.int(),
        bev_size,
    )
    return pooled.permute(0, 4, 1, 2, 3).contiguous()
