"""Register operators with PyTorch: schema, kernels, fake kernels, autograd, vmap, autocast."""

from opsmith.operators.core.operator import Operator
from opsmith.operators.core.registry import all_operators, get
from opsmith.operators.decorator import op

__all__ = ["Operator", "all_operators", "get", "op"]
