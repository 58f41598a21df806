"""The checks' own runtime: calls a kernel's C symbol with neither PyTorch nor Python around it.

A small C++ program (``driver/``) reads cases from a file, calls the kernel with a context of its
own, and writes the results to another file. So whatever happens in a call is the kernel's doing:

* memory that ends, or begins, at an inaccessible page; arguments that must not be written are
  read-only; results and scratch memory begin as NaN or the largest integer;
* a ``parallel_for`` that ignores the grain, cuts at odd places and shuffles the pieces, on one
  thread and on several;
* a count of what is allocated and not given back, and of what a call changes around it.

The same program and kernel, rebuilt with ``-fsanitize=…``, are what ``--sanitize`` runs.
"""

from opsmith.checks.harness.build import SANITIZERS, Build, build
from opsmith.checks.harness.call import Call, Fault, Phase, Report, code_of, run

__all__ = ["SANITIZERS", "Build", "Call", "Fault", "Phase", "Report", "build", "code_of", "run"]
