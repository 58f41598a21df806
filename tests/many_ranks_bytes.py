"""Train a step of `examples/many_ranks` on the ranks of torchrun; print what each rank sent."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

import torch
import torch.distributed as dist

from examples.many_ranks.main import meet, train
from opsmith.compat.communication import Communication

meet()
with Communication() as communication:
    train("tensor", 1, dtype=torch.float64)
if dist.get_rank() == 0:
    print("sent", communication.sent)
dist.barrier()
dist.destroy_process_group()
