"""Find out whether Triton is installed."""

from __future__ import annotations

import importlib

from opsmith.errors import MissingDependencyError

_GET = 'Get it: pip install "triton>=3.6"'


def triton_missing() -> str:
    """Return why no Triton kernel can run or be compiled here; empty if Triton is installed."""
    try:
        importlib.import_module("triton.language")
    except ImportError:
        return f"Triton is not installed. {_GET}"
    return ""


def require_triton(what: str) -> None:
    """Refuse to go on without Triton.

    Args:
        what: what needs Triton, for the message.

    Raises:
        MissingDependencyError: Triton is not installed.
    """
    missing = triton_missing()
    if missing:
        raise MissingDependencyError(f"{what}: the kernel is in Triton. {missing}")
