"""The declaration of an operator: names, types, symbolic shapes, value ranges; without torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opsmith.signature.annotations import (
    Between,
    Extent,
    Index,
    NonDifferentiable,
    Philox,
    Positive,
    Selects,
    Sorted,
    Starts,
    Total,
    Unspecified,
)
from opsmith.signature.constraints import Bound, Column, Order, PartStarts, Sum, ValueRange
from opsmith.signature.declare import signature_of
from opsmith.signature.dtype_variables import DtypeVar
from opsmith.signature.model import Signature
from opsmith.signature.parameters import (
    NO_DEFAULT,
    Parameter,
    Result,
    ScalarType,
    SequenceType,
    TensorListType,
    TensorType,
)

if TYPE_CHECKING:
    from opsmith.signature.binding import Bindings, TensorInfo, bind, result_shapes

__all__ = [
    "NO_DEFAULT",
    "Between",
    "Bindings",
    "Bound",
    "Column",
    "DtypeVar",
    "Extent",
    "Index",
    "NonDifferentiable",
    "Order",
    "Parameter",
    "PartStarts",
    "Philox",
    "Positive",
    "Result",
    "ScalarType",
    "Selects",
    "SequenceType",
    "Signature",
    "Sorted",
    "Starts",
    "Sum",
    "TensorInfo",
    "TensorListType",
    "TensorType",
    "Total",
    "Unspecified",
    "ValueRange",
    "bind",
    "result_shapes",
    "signature_of",
]

_OF_CALLS = ("Bindings", "TensorInfo", "bind", "result_shapes")


def __getattr__(name: str) -> object:
    # Declarations do not need these, and importing a package of operators only declares.
    if name not in _OF_CALLS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from opsmith.signature import binding

    return getattr(binding, name)
