"""Faults of kernels that compute indices in 32 bits."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import torch
from jaxtyping import Float32, Int32
from pairs import PAIRS, Pair
from torch import Tensor

import opsmith
from opsmith import Index

FOLDER = Path(__file__).with_name("narrow")


def doubled(x: Float32[Tensor, "N"]) -> Float32[Tensor, "N"]:
    return x * 2


def doubled_rows(x: Float32[Tensor, "N C"]) -> Float32[Tensor, "N C"]:
    return x * 2


def doubled_images(x: Float32[Tensor, "N C H W"]) -> Float32[Tensor, "N C H W"]:
    return x * 2


def transposed(x: Float32[Tensor, "N C"]) -> Float32[Tensor, "C N"]:
    # The result of one row is new memory too.
    return x.t().clone(memory_format=torch.contiguous_format)


def summed(x: Float32[Tensor, "N C"]) -> Float32[Tensor, "N"]:
    return x.sum(1)


def gathered(
    table: Float32[Tensor, "V C"], rows: Annotated[Int32[Tensor, "P"], Index("V")]
) -> Float32[Tensor, "P C"]:
    return table[rows.long()]


#: What each source in ``narrow/`` computes; half of the sources are in CUDA.
REFERENCES = {
    "row_and_column.cpp": doubled_rows,
    "auto_of_ints.cpp": doubled_rows,
    "offset_of_image.cpp": doubled_images,
    "piece_in_int.cpp": doubled_rows,
    "count_in_int.cpp": doubled_rows,
    "gathered_row.cpp": gathered,
    "transposed_in_int.cpp": transposed,
    "offset_in_bytes.cpp": doubled_rows,
    "serial_counter.cpp": doubled,
    "sum_of_rows.cpp": summed,
    "thread_index.cu": doubled_rows,
    "count_of_launch.cu": doubled_rows,
    "grid_stride_loop.cu": doubled_rows,
    "image_offset.cu": doubled_images,
    "block_for_a_row.cu": doubled_rows,
    "row_of_table.cu": gathered,
    "skipped_in_silence.cu": doubled_rows,
    "tile_transposed.cu": transposed,
    "row_of_grid.cu": doubled_rows,
    "behind_torch.cu": doubled,
}


def narrow(file, reference):
    """Plant the fault of a file in ``narrow/``."""
    twins = []
    stem, _, suffix = file.partition(".")
    for twin, flags in (("wrong", ["-DWRONG"]), ("right", [])):
        name = f"narrow_{stem}__{twin}"
        operator = opsmith.op(f"faults::{name}")(reference)
        operator.register_kernel(
            "cpu" if suffix == "cpp" else "cuda",
            source=FOLDER / file,
            flags=[f"-DNAME={name}", *flags],
            **({"api": "torch"} if stem == "behind_torch" else {}),
        )
        twins.append(operator)
    PAIRS.append(Pair(f"narrow {stem}".replace("_", " "), "narrow indices", *twins, "narrow-index"))


for file, reference in REFERENCES.items():
    narrow(file, reference)
