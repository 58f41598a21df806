"""Operators that the tests of wheels ship."""

import opsmith as smith
from sample_ops.squares import weighted_square, weighted_square_backward

from .old import negated
from .picks import pick

__all__ = ["Operator", "negated", "pick", "weighted_square", "weighted_square_backward"]

Operator = smith.Operator
