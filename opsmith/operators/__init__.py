"""What the PyTorch dispatcher is told: definition, kernels, fake, autograd, vmap, autocast."""

from opsmith.operators.base import Operator
from opsmith.operators.decorator import op
from opsmith.operators.registry import all_operators, get

__all__ = ["Operator", "all_operators", "get", "op"]
