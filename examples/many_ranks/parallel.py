"""Four ways to share the network among ranks, each in a few lines of PyTorch's own."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import (
    DeviceMesh,
    DTensor,
    Partial,
    Replicate,
    Shard,
    distribute_tensor,
    init_device_mesh,
)

from examples.bev_network.network import BevNetwork

#: Ranks that share the scenes of a step, and ranks that share the channels, out of all ranks.
WAYS = {
    "data": lambda ranks: (ranks, 1),
    "fsdp": lambda ranks: (ranks, 1),
    "tensor": lambda ranks: (1, ranks),
    "fsdp-tensor": lambda ranks: (ranks // 2, 2),
}


class SharedChannels(BevNetwork):
    """The network with the channels of the pooled features shared among the ranks of a mesh."""

    mesh: DeviceMesh

    def pool(self, depth: Tensor, features: Tensor, *ranks: Tensor) -> Tensor:
        """Pool a part of the channels on each rank; the operator knows how from its declaration."""

        def whole(tensor: Tensor) -> DTensor:
            return DTensor.from_local(tensor, self.mesh, [Replicate()])

        shared = whole(features).redistribute(placements=[Shard(4)])
        return super().pool(whole(depth), shared, *map(whole, ranks)).to_local()


class SharedInputs(nn.Conv2d):
    """A convolution each rank of which has a part of the input channels and of the weights."""

    def forward(self, part: Tensor) -> Tensor:
        """Convolve a part of the channels, and add up what the ranks found."""
        weight = self.weight.to_local()
        found = F.conv2d(part, weight, None, self.stride, self.padding)
        summands = DTensor.from_local(found, self.weight.device_mesh, [Partial()])
        return summands.redistribute(placements=[Replicate()]).to_local()


def share_channels(network: BevNetwork, mesh: DeviceMesh) -> None:
    """Let the ranks of a mesh share the channels between the pooling and the first convolution."""
    network.__class__, network.mesh = SharedChannels, mesh
    convolution = network.head[0][0]
    convolution.__class__ = SharedInputs
    weight = distribute_tensor(convolution.weight.detach(), mesh, [Shard(1)])
    convolution.weight = nn.Parameter(weight)


def parallelise(network: BevNetwork, way: str) -> tuple[nn.Module, DeviceMesh]:
    """Share a network among all ranks.

    Args:
        network: the network, the same on each rank.
        way: a key of `WAYS`.

    Returns:
        What is called in the network's place, and the mesh, whose first dimension shares scenes
        and whose second shares channels.
    """
    sizes = WAYS[way](torch.distributed.get_world_size())
    mesh = init_device_mesh("cpu", sizes, mesh_dim_names=("scenes", "channels"))
    if way == "data":
        return nn.parallel.DistributedDataParallel(network), mesh
    if "tensor" in way:
        share_channels(network, mesh["channels"])
    if "fsdp" in way:
        for part in (network.backbone, network.head, network):
            fully_shard(part, mesh=mesh["scenes"])
    return network, mesh
