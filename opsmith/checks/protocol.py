"""The protocol of a check, and the registry of all checks.

A check is a function that receives a `Trial`, runs cases through it, and raises `Failure` if a case
fails::

    @define_check("aliasing", "results share no memory with arguments")
    def aliasing(trial: Trial) -> None:
        def one(case: Case) -> None: ...
        trial.each(one)

To add a check, add a file to ``opsmith.checks.catalogue``: every module in that folder is imported.
So are the modules that other packages name by entry points in the group ``opsmith.checks``.
`define_check` works in other places too: in a target, or in a user's project.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

from opsmith.checks.cases.subject import Subject, subjects_of
from opsmith.errors import UnknownCheckError, no_such
from opsmith.operators import Operator
from opsmith.system.products import from_other_packages

if TYPE_CHECKING:
    from opsmith.checks.trial.trial import Trial


@dataclass(frozen=True)
class Check:
    """A property of operators that is checked, and the function that checks it.

    Attributes:
        name: the name for ``--check`` and for the report.
        summary: the property, as the end of "checks that …".
        subjects: returns the parts of an operator to run the check on; by default its kernels.
        order: position among the checks; smaller runs earlier.
        time_limit: the seconds that one step may take before the check counts as hung, as a
            multiple of the usual limit.
        samples: whether the check runs cases; if it does, it fails when there are no cases.
        flag: the option of ``opsmith check`` that turns on a slow check; naming the check turns it
            on too. Empty for a check that always runs.
        runtime: the runtime of the kernel; its column in the HTML report.
        apart: whether the kernel runs in a process of its own.
        prepares: modules that take long to import, and functions whose first call takes long
            (``module:function``); done once for all rows. None of them may start a thread.
        calls: whether the check calls the operator. If it does, it waits until the kernel is built
            and loaded.
        needs: the checks that run before it; if one of them fails for plain arguments, this check
            has nothing to add, and is not run.
    """

    name: str
    summary: str
    run: Callable[[Trial], None]
    subjects: Callable[[Operator], list[Subject]] = subjects_of
    order: int = 100
    time_limit: float = 1.0
    samples: bool = True
    flag: str = ""
    runtime: str = "eager"
    apart: bool = False
    prepares: tuple[str, ...] = ()
    calls: bool = True
    needs: tuple[str, ...] = ()

    def parts(self, operator: Operator) -> list[Subject]:
        """Return the parts of an operator to run the check on, with the variants of its kernels."""
        found = self.subjects(operator)
        variants = operator.variants.items() if self.name in OF_VARIANTS else ()
        return found + [
            replace(subject, kernel=name)
            for subject in found
            for name, kernel in variants
            if kernel.device == subject.kernel
        ]

    @property
    def compiles(self) -> bool:
        """Return whether the check spends most of its time waiting for compilers."""
        return self.time_limit > 1.0


#: The checks of ``opsmith check --quick``: they find most defects, and compile only the kernel.
QUICK = (
    "build",
    "dispatch",
    "reference",
    "exact",
    "bounds",
    "schedules",
    "cuda-on-cpu",
    "ascendc-on-cpu",
    "triton-interpreter",
    "layouts",
    "fake",
    "mutation",
    "gradient",
    "validation",
)

#: The checks of plain calls: of memory, order and values. What they find explains what others find.
PLAIN_CALLS = (
    *("dispatch", "bounds", "schedules", "reference"),
    *("cuda-on-cpu", "ascendc-on-cpu", "triton-interpreter"),
)

#: The checks of a kernel's code, which run for each of its variants. The others would find no more.
OF_VARIANTS = ("build", "exact", "nvcc", *(name for name in PLAIN_CALLS if name != "dispatch"))

_CHECKS: dict[str, Check] = {}


def define_check(
    name: str,
    summary: str,
    *,
    subjects: Callable[[Operator], list[Subject]] = subjects_of,
    order: int = 100,
    time_limit: float = 1.0,
    samples: bool = True,
    flag: str = "",
    runtime: str = "eager",
    apart: bool = False,
    prepares: tuple[str, ...] = (),
    calls: bool = True,
    needs: tuple[str, ...] = (),
) -> Callable[[Callable[[Trial], None]], Callable[[Trial], None]]:
    """Register the decorated function as a check; see `Check` for the arguments."""
    given = locals()

    def register(run: Callable[[Trial], None]) -> Callable[[Trial], None]:
        _CHECKS[name] = Check(run=run, **given)
        return run

    return register


@cache
def _find() -> None:
    # Imported by name, since the files of the catalogue import this module.
    catalogue = importlib.import_module("opsmith.checks.catalogue")
    for module in pkgutil.walk_packages(catalogue.__path__, f"{catalogue.__name__}."):
        importlib.import_module(module.name)
    from_other_packages("opsmith.checks", "check", object)


def all_checks() -> list[Check]:
    """Return every check, in the order in which they run."""
    _find()
    return sorted(_CHECKS.values(), key=lambda one: (one.order, one.name))


def selected(names: Sequence[str] | None, flags: Sequence[str] = ()) -> list[Check]:
    """Return the checks called `names`, and the checks that one of `flags` turns on.

    Without names, return all checks that need no flag, and the checks of `flags`.

    Raises:
        UnknownCheckError: a name or a flag belongs to no check.
    """
    everything = all_checks()
    known = {one.name for one in everything}
    for name in names or ():
        if name not in known:
            raise UnknownCheckError(no_such("check", name, [one.name for one in everything]))
    for flag in flags:
        if not any(one.flag == flag for one in everything):
            raise UnknownCheckError(f"no check has the flag {flag!r}")
    return [
        one
        for one in everything
        if (one.name in names if names else not one.flag) or (one.flag and one.flag in flags)
    ]
