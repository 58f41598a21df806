"""From the images of six cameras to a map of what stands around the car, seen from above."""

import torch
from torch import Tensor, nn

from examples.bev_network.scenes import BINS, GRID, Scene
from gallery.bev_pool_v2.bev_pool_v2 import bev_pool_v2


def _block(inputs: int, outputs: int, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, stride, 1, bias=False),
        nn.BatchNorm2d(outputs),
        nn.ReLU(inplace=True),
    )


class BevNetwork(nn.Module):
    """Backbone, depth, lift, pool, head, as in lift-splat (Philion and Fidler 2020) and BEVDet.

    Args:
        channels: C, of the features that are pooled.
    """

    def __init__(self, channels: int = 16) -> None:
        super().__init__()
        self.channels = channels
        self.backbone = nn.Sequential(
            _block(3, 16, 2), _block(16, 32, 2), _block(32, 48, 2), _block(48, 48)
        )
        self.depth_and_features = nn.Conv2d(48, BINS + channels, 1)
        self.head = nn.Sequential(_block(channels, 32), _block(32, 32), nn.Conv2d(32, 1, 1))

    def forward(
        self,
        images: Tensor,
        ranks_depth: Tensor,
        ranks_feat: Tensor,
        ranks_bev: Tensor,
        interval_starts: Tensor,
        interval_lengths: Tensor,
    ) -> Tensor:
        """Give how likely a box stands in each cell.

        Args:
            images: (B, N, 3, height, width).
            ranks_depth: (P,), and so the next two; see `bev_pool_v2`.
            ranks_feat: see `ranks_depth`.
            ranks_bev: see `ranks_depth`.
            interval_starts: (I,), and so the next one.
            interval_lengths: see `interval_starts`.

        Returns:
            (B, 1, Y, X), before the sigmoid.
        """
        frames, cameras = images.shape[:2]
        maps = self.depth_and_features(self.backbone(images.flatten(0, 1)))
        maps = maps.unflatten(0, (frames, cameras))
        # How far each pixel's features are carried along its ray: a distribution over the bins.
        depth = maps[:, :, :BINS].softmax(2)
        features = maps[:, :, BINS:].permute(0, 1, 3, 4, 2)
        pooled = self.pool(
            depth,
            features,
            ranks_depth,
            ranks_feat,
            ranks_bev,
            interval_starts,
            interval_lengths,
        )
        above = pooled.permute(0, 4, 1, 2, 3).flatten(1, 2)
        return self.head(above)

    def pool(self, depth: Tensor, features: Tensor, *ranks: Tensor) -> Tensor:
        """Carry features into cells, (B, Z, Y, X, C).

        Args:
            depth: (B, N, D, H, W), how much of each pixel's features stands at each depth.
            features: (B, N, H, W, C).
            ranks: which points fall into which cells, as `forward` has them.
        """
        return bev_pool_v2(depth, features, *ranks, GRID.bev_size)


def dynamic_shapes() -> tuple[dict[int, torch.export.Dim] | None, ...]:
    """What differs from scene to scene: the number of points P and of intervals I."""
    points, intervals = torch.export.Dim("P"), torch.export.Dim("I")
    return None, *[{0: points}] * 3, *[{0: intervals}] * 2


def train(network: BevNetwork, scenes: list[Scene], steps: int) -> list[float]:
    """Train for a few steps.

    Returns:
        The loss of every step.
    """
    network.train()
    optimiser = torch.optim.Adam(network.parameters(), 5e-3)
    loss_of = nn.BCEWithLogitsLoss(pos_weight=torch.tensor(20.0))
    losses = []
    for step in range(steps):
        batch = [scenes[(2 * step + i) % len(scenes)] for i in range(2)]
        optimiser.zero_grad()
        loss = torch.stack(
            [loss_of(network(*scene.inputs), scene.target) for scene in batch]
        ).mean()
        loss.backward()
        optimiser.step()
        losses.append(float(loss.detach()))
    return losses
