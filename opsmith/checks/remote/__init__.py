"""Calls of a kernel in a process of its own: bytes go there, bytes come back.

The process that draws cases, knows what is right and compares never runs the kernel. It has a
`Caller`; at the other end is `opsmith.checks.remote.serving`.
"""

from opsmith.checks.remote.caller import Caller

__all__ = ["Caller"]
