"""In an installed package, in place of ``opsmith.kernels.languages.torch_library``."""

from __future__ import annotations


def forget_definition(qualname: str) -> None:
    """No source defines operators."""
    del qualname
