"""Messages about exceptions raised by a user's code."""

from __future__ import annotations

import traceback
from pathlib import Path

from opsmith.operators.core.validation import SharedMemoryError


def raised(error: BaseException) -> str:
    """Describe the exception of a call, with the innermost line of the user's code."""
    if isinstance(error, SharedMemoryError):  # opsmith's own words about the kernel's results
        return str(error)
    text = f"raised {type(error).__name__}: {str(error).strip()}"
    own = Path(__file__).parents[2]
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        inside = path.is_relative_to(own) or "site-packages" in path.parts
        if not inside and path.is_file():
            return f"{text}\n  at {frame.filename}:{frame.lineno}"
    return text
