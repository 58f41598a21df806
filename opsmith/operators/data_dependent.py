"""What PyTorch raises where a trace, which has no values, is asked for them."""

from __future__ import annotations


def asks_for_values(error: BaseException) -> bool:
    """Whether an error says that code decides by a tensor's values, or by sizes that follow."""
    # Late: they bring sympy along.
    from torch._subclasses.fake_tensor import DataDependentOutputException
    from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

    return isinstance(error, GuardOnDataDependentSymNode | DataDependentOutputException)
