"""What every target that takes models does first: forms chosen, references inlined.

A custom operator of a model either keeps a call of its own, or is inlined: replaced by what its
reference does. `lower` takes a model from the one to the other for any runtime; which forms a
runtime has, and what each asks of an operator, is the target's to say (`Chooser`).
"""

from opsmith.targets.exporting.lowering.choice import (
    INLINE,
    Choice,
    Chooser,
    call_arguments,
    inline,
)
from opsmith.targets.exporting.lowering.functional import (
    call_twin,
    decode,
    encode,
    is_encoded,
    twin,
)
from opsmith.targets.exporting.lowering.inlining import Lowered, lower, overload_of

__all__ = [
    "INLINE",
    "Choice",
    "Chooser",
    "Lowered",
    "call_arguments",
    "call_twin",
    "decode",
    "encode",
    "inline",
    "is_encoded",
    "lower",
    "overload_of",
    "twin",
]
