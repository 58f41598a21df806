"""Hypothesis: its database of failing examples, which opsmith does not use.

The attribute exists since 6.0.
"""

from __future__ import annotations

from opsmith.untyped import Untyped


def give_no_key(test: Untyped) -> None:
    """Keep Hypothesis from deriving a key for its database from a test's source on every call.

    The attribute ``_hypothesis_internal_database_key``. Without it, a search takes longer.
    """
    test._hypothesis_internal_database_key = b""
