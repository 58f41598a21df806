"""Convert tensors to and from NumPy arrays in the dtypes that the package ml_dtypes adds."""

from __future__ import annotations

import numpy as np
import torch
from torch import Tensor

#: Dtypes that ml_dtypes adds to NumPy, by name, with PyTorch's integers of the same size.
WORDS = {
    "bfloat16": torch.uint16,
    "float8_e4m3fn": torch.uint8,
    "float8_e5m2": torch.uint8,
}


def array_of(tensor: Tensor) -> np.ndarray:
    """Return a contiguous CPU tensor as an array that shares its memory.

    Raises:
        ImportError: the dtype requires ml_dtypes, and ml_dtypes is not installed.
    """
    name = str(tensor.dtype).removeprefix("torch.")
    if name not in WORDS:
        return tensor.numpy()
    import ml_dtypes

    return tensor.view(WORDS[name]).numpy().view(getattr(ml_dtypes, name))


def tensor_of(array: np.ndarray) -> Tensor:
    """Return an array as a tensor that shares its memory."""
    name = array.dtype.name
    if name not in WORDS:
        return torch.from_numpy(array)
    return torch.from_numpy(array.view(f"u{array.itemsize}")).view(getattr(torch, name))
