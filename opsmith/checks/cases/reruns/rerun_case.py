"""The failing case of a check, and a second run of the check with this case alone."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Replay:
    """The case that a check fails with and, for a second run, the cases to run.

    The samples depend only on the seed and on which cases fail. If a second run counts crashed
    cases as failed and all others as passed, it reaches the same case without an earlier call.

    Attributes:
        alone: the key of the only case to run; empty to run all cases.
        file: the file to save the failing case in; empty to save none.
        key: the key of the failing case; empty if no single case shows the failure.
        crashed: whether the failing case ended the kernel's process.
    """

    alone: str = ""
    file: str = ""
    key: str = ""
    crashed: bool = False
