"""Replace ``opsmith.kernels.languages.triton.language`` in an installed package.

The package contains the kernels that Triton compiled ahead of time; Triton compiles the others when
they are called.
"""

from __future__ import annotations

from typing import Any


class Triton:
    """The attributes of Triton's language that an installed package needs."""

    api = "opsmith"
    has_entry = True

    def __init__(self, kernel: Any, served: Any) -> None:
        del kernel, served
