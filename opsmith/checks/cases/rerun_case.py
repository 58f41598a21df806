"""What a check failed with, so that it can be called with that alone."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass
class Replay:
    """The case that a check fails with; and, for a second run, which cases it really runs.

    Sampling follows from the seed and from which cases fail. So a second run that takes crashed
    cases as failed, and all others as passed, comes to the same case without a call before it.

    Attributes:
        alone: the key of the one case to run; all where it is empty.
        file: where the case that fails is put; nowhere where it is empty.
        key: the case that the check failed with; empty where no single one shows it.
        crashed: whether the kernel's process ended then.
    """

    alone: str = ""
    file: str = ""
    key: str = ""
    crashed: bool = False
