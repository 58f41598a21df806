"""Lower a model for a target: choose a form for each custom operator, and inline references.

A custom operator of a model either keeps a call of its own, or is inlined: replaced by the
operations of its reference. `lower` does this for any runtime; the target's `Chooser` defines
which forms the runtime has, and what each form requires of an operator.
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
