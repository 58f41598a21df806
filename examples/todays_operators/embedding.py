"""Embedding by indices of either width, with the gradient of its table."""

from typing import Annotated

import torch
from jaxtyping import Float, Int32, Int64
from torch import Tensor

import opsmith
from opsmith import Index

Ids = opsmith.DtypeVar("Ids", Int32, Int64)


@opsmith.op("today::embedding")
def embedding(
    weight: Float[Tensor, "V D"], ids: Annotated[Ids[Tensor, "*n"], Index("V")]
) -> Float[Tensor, "*n D"]:
    """Take rows of a table.

    Source:
        ``torch.nn.functional.embedding``.
    """
    return weight[ids]


@opsmith.op("today::embedding_backward")
def embedding_backward(
    grad: Float[Tensor, "*n D"],
    weight: Float[Tensor, "V D"],
    ids: Annotated[Ids[Tensor, "*n"], Index("V")],
) -> Float[Tensor, "V D"]:
    """Add up the gradients of each row; of the table itself, only the shape matters."""
    rows = grad.reshape(ids.numel(), weight.shape[1])
    return torch.zeros_like(weight).index_add(0, ids.reshape(-1), rows)


embedding.register_kernel("cpu", source="embedding.cpp")
embedding_backward.register_kernel("cpu", source="embedding.cpp")
embedding.register_backward(embedding_backward, grads={"weight": 0})
