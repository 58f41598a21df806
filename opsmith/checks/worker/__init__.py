"""The process that checks run in: a kernel that crashes or hangs takes nothing else down."""

from opsmith.checks.worker.parent import ElsewhereError, Worker
from opsmith.checks.worker.spare import borrowed, keep_workers

__all__ = ["ElsewhereError", "Worker", "borrowed", "keep_workers"]
