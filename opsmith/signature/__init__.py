"""What a declaration says: names, types, symbolic shapes, value ranges. No torch, no compiler."""

from opsmith.signature.annotations import (
    Between,
    Extent,
    Index,
    NonDifferentiable,
    Positive,
    Sorted,
    Starts,
    Total,
)
from opsmith.signature.binding import Bindings, TensorInfo, bind, result_shapes
from opsmith.signature.constraints import (
    Bound,
    Constraint,
    Order,
    PartStarts,
    Sum,
    ValueRange,
)
from opsmith.signature.declare import signature_of, split_qualname
from opsmith.signature.model import (
    NO_DEFAULT,
    Parameter,
    Result,
    ScalarType,
    SequenceType,
    Signature,
    TensorListType,
    TensorType,
)

__all__ = [
    "NO_DEFAULT",
    "Between",
    "Bindings",
    "Bound",
    "Constraint",
    "Extent",
    "Index",
    "NonDifferentiable",
    "Order",
    "Parameter",
    "PartStarts",
    "Positive",
    "Result",
    "ScalarType",
    "SequenceType",
    "Signature",
    "Sorted",
    "Starts",
    "Sum",
    "TensorInfo",
    "TensorListType",
    "TensorType",
    "Total",
    "ValueRange",
    "bind",
    "result_shapes",
    "signature_of",
    "split_qualname",
]
