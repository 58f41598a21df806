"""C++ kernels with a fault."""

from jaxtyping import Float
from torch import Tensor

import opsmith


@opsmith.op("faults::last_row")
def last_row(x: Float[Tensor, "N C"]) -> Float[Tensor, "N C"]:
    return x * 2


@opsmith.op("faults::flat_reader")
def flat_reader(x: Float[Tensor, "N C"]) -> Float[Tensor, "N C"]:
    return x * 2


@opsmith.op("faults::by_pieces")
def by_pieces(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
    return x * 2


last_row.register_kernel("cpu", source="native/last_row.cpp")
by_pieces.register_kernel("cpu", source="native/by_pieces.cpp")
flat_reader.register_kernel("cpu", source="native/flat_reader.cpp", strided=True)
