"""What it takes to make one call of a check again, in a process that makes no other."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class Replay:
    """What a check's calls came to; and, for a second run, which of them alone is made.

    Sampling follows from the seed and from which cases fail. So a second run that takes the failed
    cases as failed, and all others as passed, comes to the same case without a call before it.

    Attributes:
        alone: the key of the one case to run; all where it is empty.
        failed: the cases that failed, by their keys, and how.
        key: the case that the check failed with; empty where no single one shows it.
        crashed: whether the kernel's process ended then.
        ran: whether `alone` was come to, and ran.
    """

    alone: str = ""
    failed: dict[str, str] = field(default_factory=dict)
    key: str = ""
    crashed: bool = False
    ran: bool = False

    @property
    def right(self) -> bool:
        """Whether the one case ran alone, and did not fail."""
        return self.ran and self.alone not in self.failed
