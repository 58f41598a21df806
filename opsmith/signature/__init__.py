"""What a declaration says: names, types, symbolic shapes, value ranges. No torch, no compiler."""

from opsmith.signature.binding import Bindings, TensorInfo, bind, result_shapes
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
    ValueRange,
)
from opsmith.signature.ranges import Between, Extent, Index

__all__ = [
    "NO_DEFAULT",
    "Between",
    "Bindings",
    "Extent",
    "Index",
    "Parameter",
    "Result",
    "ScalarType",
    "SequenceType",
    "Signature",
    "TensorInfo",
    "TensorListType",
    "TensorType",
    "ValueRange",
    "bind",
    "result_shapes",
    "signature_of",
    "split_qualname",
]
