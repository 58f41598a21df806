"""A verdict on kernels that nobody trusts, reached in a process where their code never ran.

The judge imports the declaration, draws the cases, holds the seed and the right results, compares,
and decides. The candidate's process gets arguments and returns results: bytes, and nothing else.
"""

from opsmith.judge.judge import Verdict, judge

__all__ = ["Verdict", "judge"]
