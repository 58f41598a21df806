"""How many threads PyTorch computes with, for a while."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def threads(count: int) -> Iterator[None]:
    """Compute with `count` threads.

    With one, no other thread is woken, which for small tensors costs more than it gives.
    """
    before = torch.get_num_threads()
    torch.set_num_threads(count)
    try:
        yield
    finally:
        torch.set_num_threads(before)
