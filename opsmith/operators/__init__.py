"""What the PyTorch dispatcher is told: definition, kernels, fake, autograd, vmap, autocast."""

from opsmith.operators.operator import Operator, op
from opsmith.operators.registry import all_operators, get

__all__ = ["Operator", "all_operators", "get", "op"]
