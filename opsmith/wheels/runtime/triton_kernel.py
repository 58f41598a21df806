"""In an installed package, in place of ``opsmith.operators.triton_kernel``."""

from __future__ import annotations

from typing import Any

from opsmith.errors import MissingError

TritonLauncher: Any = None


def check_arguments(name: str, triton: Any, *others: Any) -> None:
    """Refuse kernels in Triton.

    Raises:
        MissingError: this is one.
    """
    del others
    if triton:
        raise MissingError(f"{name}: kernels in Triton need opsmith itself: pip install opsmith")
