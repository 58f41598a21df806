"""The process that checks run in: a kernel that crashes or hangs takes nothing else down."""

from opsmith.checks.worker.parent import ElsewhereError, Worker

__all__ = ["ElsewhereError", "Worker"]
