"""Judge untrusted kernels, in a process that never runs their code.

The judge imports the declaration, draws the cases, keeps the seed and the right results, compares,
and decides. The candidate's process only receives arguments and returns results, both as bytes.
"""

from opsmith.judge.judge import NothingJudgedError, NotSandboxedError, Verdict, judge

__all__ = ["NotSandboxedError", "NothingJudgedError", "Verdict", "judge"]
