"""Whether Triton is here."""

from __future__ import annotations

import importlib

from opsmith.errors import MissingDependencyError

_GET = 'Get it: pip install "triton>=3.6"'


def triton_missing() -> str:
    """Why no kernel in Triton can run or be compiled here; empty where one can."""
    try:
        importlib.import_module("triton.language")
    except ImportError:
        return f"Triton is not installed. {_GET}"
    return ""


def require_triton(what: str) -> None:
    """Ask for Triton.

    Args:
        what: what needs it, for the message.

    Raises:
        MissingDependencyError: it is not installed.
    """
    missing = triton_missing()
    if missing:
        raise MissingDependencyError(f"{what}: the kernel is in Triton. {missing}")
