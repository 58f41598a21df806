"""Describe a candidate's kernel as checks take one, and tell when its first cases are right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from opsmith.checks.cases.case import Case
from opsmith.checks.cases.subject import Subject
from opsmith.checks.trial.trial import Trial


class JudgeTrial(Trial):
    """Calls `once_right` after its first cases, of which most wrong kernels fail one."""

    once_right: Callable[[], None] | None = None

    def each(self, body: Callable[[Case], None], **wanted: Any) -> None:
        """Run cases, and have the program begin after the first of them."""
        once_right, self.once_right = self.once_right, None
        super().each(body, **wanted)
        if once_right is not None:
            once_right()


@dataclass(frozen=True)
class JudgedSubject(Subject):
    """An operator whose kernel runs in another process.

    Attributes:
        own: the generic dtypes that the kernel has; `None` for all.
    """

    own: tuple[str, ...] | None = None

    @property
    def dtypes(self) -> tuple[str | None, ...]:
        """The generic dtypes that the candidate's kernel has."""
        every = super().dtypes
        if self.own is None or every == (None,):
            return every
        return tuple(name for name in every if name in self.own)
