"""Collectives are counted: their kinds, numbers of ranks and bytes."""

from collections.abc import Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.tensor import (
    DeviceMesh,
    DTensor,
    Partial,
    Replicate,
    Shard,
    init_device_mesh,
)

from opsmith.compat.communication import Collective, Communication
from opsmith.compat.torch_distributed import group_without_others


@pytest.fixture
def mesh() -> Iterator[DeviceMesh]:
    with group_without_others(4, rank=1):
        yield init_device_mesh("cpu", (4,))


@pytest.mark.parametrize(
    ("now", "wanted", "expected"),
    [
        (Shard(0), Replicate(), Collective("all_gather", 4, 3 * 2 * 6 * 4)),
        (Partial(), Replicate(), Collective("all_reduce", 4, 2 * 3 * 2 * 6 * 4)),
        (Partial(), Shard(0), Collective("reduce_scatter", 4, 3 * 2 * 6 * 4)),
        (Replicate(), Shard(0), None),
    ],
)
def test_the_bytes_of_a_redistribution_are_those_of_rings(
    mesh: DeviceMesh, now: Any, wanted: Any, expected: Collective | None
) -> None:
    local = torch.ones(2 if now.is_shard() else 8, 6)
    given = DTensor.from_local(local, mesh, [now], run_check=False)
    with Communication() as communication:
        given.redistribute(mesh, [wanted])
    assert communication.collectives == [expected] * (expected is not None)
    assert communication.sent == (expected.sent if expected else 0)


@pytest.mark.parametrize(
    ("call", "expected"),
    [
        (lambda x: dist.all_reduce(x), Collective("all_reduce", 4, 2 * 3 * 8)),
        (lambda x: dist.broadcast(x, 0), Collective("broadcast", 4, 3 * 8)),
        (
            lambda x: dist.all_gather([torch.empty_like(x) for _ in range(4)], x),
            Collective("all_gather", 4, 3 * 32),
        ),
        (
            lambda x: dist.reduce_scatter(x, [torch.empty_like(x) for _ in range(4)]),
            Collective("reduce_scatter", 4, 3 * 32),
        ),
    ],
)
def test_collectives_of_torch_distributed_are_counted(
    mesh: DeviceMesh, call: Any, expected: Collective
) -> None:
    x: Tensor = torch.ones(8)
    with Communication() as communication:
        call(x)
    assert communication.collectives == [expected]
    assert communication.counts() == {expected.kind: 1}
