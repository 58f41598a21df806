"""The discrete Fourier transform of real signals, in single and double precision."""

from typing import Annotated

import torch
from jaxtyping import Complex, Float
from torch import Tensor

import opsmith
from opsmith import Unspecified


@opsmith.op("today::rfft", autograd="reference", parallel_dims=("B",), where=("N >= 1",))
def rfft(
    x: Annotated[Float[Tensor, "B N"], Unspecified(nan=True, inf=True)],
) -> Complex[Tensor, "B N//2+1"]:
    """Transform each row; the upper half of its spectrum is the lower one's conjugate.

    Source:
        ``torch.fft.rfft``.
    """
    if not x.shape[0]:  # what a rank has where there are more ranks than rows; MKL refuses it
        empty = x[:, : x.shape[1] // 2 + 1]
        return torch.complex(empty, empty)
    return torch.fft.rfft(x)


rfft.register_kernel("cpu", source="rfft.cpp")
