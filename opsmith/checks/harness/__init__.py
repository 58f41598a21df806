"""The checks' own runtime: it calls a kernel's C symbol without PyTorch and Python in the process.

A small C++ program (``driver/``) reads cases from a file, calls the kernel with a context of its
own, and writes the results to another file. The kernel is therefore the cause of every fault in a
call. The program provides:

* memory that ends, or begins, at an inaccessible page; arguments that must not be written are
  read-only; results and scratch memory are filled with NaN or the largest integer;
* a ``parallel_for`` that ignores the grain, cuts at random places and shuffles the pieces, on one
  thread and on several;
* a count of allocations that are not freed, and of changes to the state of the process.

``--sanitize`` runs the same program and kernel, rebuilt with ``-fsanitize=…``.
"""

from opsmith.checks.harness.build import SANITIZERS as SANITIZERS, Build as Build, build as build
from opsmith.checks.harness.call import (
    Called as Called,
    Elements as Elements,
    Fault as Fault,
    Phase as Phase,
    code_of as code_of,
    flat_memory as flat_memory,
    repeated as repeated,
    run as run,
)
