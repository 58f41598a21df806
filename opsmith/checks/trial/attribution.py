"""Attribute the failures of a check: to a function of the user's, and to a failure code."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import hypothesis

from opsmith.checks.cases.failure import Failure, Inapplicable, raised
from opsmith.checks.numerics.oracle import RefusedError
from opsmith.operators.core.source_location import where_written


@dataclass(slots=True)
class Attribution:
    """The function that failures are about, and the codes that failures get.

    Attributes:
        blame: the function that a failure is about, if it is not the kernel: ``backward:
            file.py:7``.
        wrong: the failure code for a wrong value, if there is a more specific code.
        raises: the failure code for an exception.
    """

    blame: str = ""
    wrong: str = ""
    raises: str = "OPS-CALL-RAISED"

    def about(self, what: str, function: object) -> None:
        """Attribute later failures to a function of the user's, if there is one."""
        self.blame = _where(what, function)

    @contextmanager
    def blaming(self, what: str, function: object) -> Iterator[None]:
        """Attribute failures inside the block to a function of the user's, if there is one."""
        try:
            yield
        except Failure as failure:
            failure.blame = failure.blame or _where(what, function)
            raise
        except (RefusedError, Inapplicable, hypothesis.errors.HypothesisException):
            raise
        except Exception as error:
            blamed = Failure(raised(error), code=self.raises)
            blamed.blame = _where(what, function)
            raise blamed from error


def _where(what: str, function: object) -> str:
    """Return ``what: file.py:7`` for the place of a function; empty without a function."""
    written = where_written(function)
    return f"{what}: {written}" if written else ""
