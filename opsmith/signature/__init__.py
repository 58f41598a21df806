"""The declaration of an operator: names, types, symbolic shapes, value ranges; without torch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from opsmith.signature.annotations import (
    Between as Between,
    Extent as Extent,
    Index as Index,
    NonDifferentiable as NonDifferentiable,
    Philox as Philox,
    Positive as Positive,
    Selects as Selects,
    Sorted as Sorted,
    Starts as Starts,
    Total as Total,
    Unspecified as Unspecified,
)
from opsmith.signature.constraints import (
    Bound as Bound,
    Column as Column,
    Order as Order,
    PartStarts as PartStarts,
    Sum as Sum,
    ValueRange as ValueRange,
)
from opsmith.signature.declare import signature_of as signature_of
from opsmith.signature.dtype_variables import DtypeVar as DtypeVar
from opsmith.signature.model import Signature as Signature
from opsmith.signature.parameters import (
    NO_DEFAULT as NO_DEFAULT,
    Parameter as Parameter,
    Result as Result,
    ScalarType as ScalarType,
    SequenceType as SequenceType,
    TensorListType as TensorListType,
    TensorType as TensorType,
)

if TYPE_CHECKING:
    from opsmith.signature.binding import (
        Bindings as Bindings,
        TensorInfo as TensorInfo,
        bind as bind,
        result_shapes as result_shapes,
    )


_OF_CALLS = ("Bindings", "TensorInfo", "bind", "result_shapes")


def __getattr__(name: str) -> object:
    # Declarations do not need these, and importing a package of operators only declares.
    if name not in _OF_CALLS:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from opsmith.signature import binding

    return getattr(binding, name)
