"""Candidates that must be refused, as data: by kind, a kernel's body and what stands before it.

The operator is that of `spec.py`: ``x * factor + x.sum(1, keepdim=True)``. A body that tries to get
out of its process returns the right result only if it did get out, so it is accepted if a wall has
a hole. ``RIGHT`` is the right result, ``WRONG`` a wrong one.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Attack:
    """A candidate to refuse.

    Attributes:
        body: the kernel's body.
        before: what stands before the kernel, at the candidate's outermost level.
        alone: whether it needs a candidate of its own, since it spoils the process, or its import.
        boxed: whether only the sandbox stops it.
    """

    body: str = "return WRONG"
    before: str = ""
    alone: bool = False
    boxed: bool = False


def tried(attempt: str, *, alone: bool = False, boxed: bool = True) -> Attack:
    """Return an attack that is right if an attempt raises nothing and sets ``out``."""
    lines = "".join(f"    {line}\n" for line in attempt.strip("\n").split("\n"))
    body = f"out = False\ntry:\n{lines}except Exception:\n    out = False\n"
    return Attack(body + "return RIGHT if out else WRONG", alone=alone, boxed=boxed)
