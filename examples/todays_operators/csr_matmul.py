"""A sparse matrix in CSR times a dense one, with gradients for both."""

from typing import Annotated

import torch
from jaxtyping import Float, Int32, Int64
from torch import Tensor

import opsmith
from opsmith import Index, Sorted

Ids = opsmith.DtypeVar("Ids", Int32, Int64)


@opsmith.op("today::csr_matmul", autograd="reference", parallel_dims=("D",))
def csr_matmul(
    offsets: Annotated[Ids[Tensor, "R+1"], Sorted(first=0, last="P")],
    columns: Annotated[Ids[Tensor, "P"], Index("C")],
    values: Float[Tensor, "P"],
    dense: Float[Tensor, "C D"],
) -> Float[Tensor, "R D"]:
    """Multiply a sparse matrix of R rows and P values by a dense one.

    Args:
        offsets: where the values of each row begin, and their number at the end.
        columns: the column of each value; a column may occur more than once in a row.
        values: the values, row after row.
        dense: the dense matrix.

    Source:
        ``torch.sparse_csr_tensor``, and its product with a dense matrix.
    """
    places = torch.arange(len(values), dtype=offsets.dtype, device=offsets.device)
    rows = torch.searchsorted(offsets[1:].contiguous(), places, right=True)
    terms = values[:, None] * dense[columns]
    zeros = terms.new_zeros(offsets.shape[0] - 1, dense.shape[1])
    return zeros.index_add(0, rows, terms)


csr_matmul.register_kernel("cpu", source="csr_matmul.cpp")
