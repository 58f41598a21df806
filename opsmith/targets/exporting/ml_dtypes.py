"""Arrays of NumPy in the dtypes that the package ml_dtypes adds to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
from torch import Tensor

if TYPE_CHECKING:
    import numpy as np

#: PyTorch's dtypes that NumPy has from ml_dtypes, by name, and integers of their size.
_WORDS = {
    "bfloat16": torch.uint16,
    "float8_e4m3fn": torch.uint8,
    "float8_e5m2": torch.uint8,
}


def array_of(tensor: Tensor) -> np.ndarray:
    """A contiguous tensor of the CPU as an array of the same memory.

    Raises:
        ImportError: ml_dtypes, which has its dtype, is not installed.
    """
    name = str(tensor.dtype).removeprefix("torch.")
    if name not in _WORDS:
        return tensor.numpy()
    import ml_dtypes

    return tensor.view(_WORDS[name]).numpy().view(getattr(ml_dtypes, name))


def tensor_of(array: np.ndarray) -> Tensor:
    """An array as a tensor of the same memory."""
    name = array.dtype.name
    if name not in _WORDS:
        return torch.from_numpy(array)
    words = array.view(f"u{array.itemsize}")
    return torch.from_numpy(words).view(getattr(torch, name))
