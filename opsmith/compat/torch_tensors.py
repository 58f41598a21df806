"""Facts about tensors that PyTorch keeps in attributes of its own.

Every name exists in each release from 2.10 on.
"""

from __future__ import annotations

import torch
from torch import Tensor


def version_of(tensor: Tensor) -> int:
    """Return how often a tensor's memory was written.

    Private: ``torch.Tensor._version``. Without it, checks do not see that a kernel wrote into an
    argument what was there before, or wrote without telling PyTorch.
    """
    return tensor._version


def is_view(tensor: Tensor) -> bool:
    """Return whether a tensor is a view of another one.

    Private: ``torch.Tensor._is_view``. Without it, gradients through a written view are wrong in
    silence, and an operator that writes into one is exported to TorchScript.
    """
    return tensor._is_view()


def is_zero_tensor(tensor: Tensor) -> bool:
    """Return whether a tensor is zero everywhere and has no storage.

    Private: ``torch.Tensor._is_zerotensor``. Without it, some of PyTorch's operators crash on such
    an incoming gradient.
    """
    return tensor._is_zerotensor()


def storage_id(storage: torch.UntypedStorage) -> int:
    """Return an identifier of a storage, also of an empty one, whose address is 0.

    Private: ``torch.UntypedStorage._cdata``. Without it, empty tensors of different memory count as
    views of each other.
    """
    return storage._cdata
