"""Translate derivatives of PyTorch to Python code that JAX runs."""

from opsmith.targets.jax.derivatives.model import Derivative
from opsmith.targets.jax.derivatives.translate import derivative

__all__ = ["Derivative", "derivative"]
