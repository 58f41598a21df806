"""What the PyTorch dispatcher is told: definition, kernels, fake, autograd, vmap, autocast."""

from opsmith.operators.core.operator import Operator
from opsmith.operators.core.registry import all_operators, get
from opsmith.operators.decorator import op

__all__ = ["Operator", "all_operators", "get", "op"]
