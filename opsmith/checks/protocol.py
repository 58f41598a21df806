"""What a check is, and how one is added.

A check is a function that takes a `Trial`, runs cases through it, and raises `Failure` where
something does not hold::

    @check("aliasing", "results share no memory with arguments")
    def aliasing(trial: Trial) -> None:
        def one(case: Case) -> None: ...
        trial.each(one)

Every module in ``opsmith.checks.catalogue`` is imported, so a file there adds its checks and no
other file changes; `check` used elsewhere (in a target, in a user's project) does the same.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from opsmith.checks.cases.subject import Subject, subjects_of
from opsmith.errors import OpsmithError
from opsmith.operators import Operator

if TYPE_CHECKING:
    from opsmith.checks.trial import Trial


@dataclass(frozen=True)
class Check:
    """One thing that must hold.

    Attributes:
        name: what ``--check`` and the report call it.
        summary: what must hold, as the end of "checks that …".
        run: does it.
        subjects: what of an operator it is run on; its kernels unless said otherwise.
        order: smaller runs earlier.
        time_limit: the seconds that one step may take before the check counts as hung, as a
            multiple of the usual limit.
        samples: whether it runs cases; then it fails where there are none.
        flag: the option of ``opsmith check`` without which it does not run, as it is slow; it runs
            where it is selected by name, too.
        runtime: what the kernel runs in; the column that it has in a page.
        prepares: modules that take long to import, and functions that take long when first called
            (``module:function``), once for all rows; none starts a thread.
        calls: whether it calls the operator, whose kernel is built and loaded before it runs; one
            that does not need not wait for that.
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

    @property
    def compiles(self) -> bool:
        """Whether it waits for compilers most of the time."""
        return self.time_limit > 1.0


class UnknownCheckError(OpsmithError):
    """No check has this name."""

    exit_code = 2


#: What ``opsmith check --quick`` runs: what finds most, and compiles nothing but the kernel.
QUICK = (
    "build",
    "dispatch",
    "reference",
    "bounds",
    "schedules",
    "layouts",
    "fake",
    "mutation",
    "gradient",
    "validation",
)

_CHECKS: dict[str, Check] = {}


def check(
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
) -> Callable[[Callable[[Trial], None]], Callable[[Trial], None]]:
    """Make the decorated function a check; see `Check` for the arguments."""

    def register(run: Callable[[Trial], None]) -> Callable[[Trial], None]:
        _CHECKS[name] = Check(
            name,
            summary,
            run,
            subjects,
            order,
            time_limit,
            samples,
            flag,
            runtime,
            apart,
            prepares,
            calls,
        )
        return run

    return register


def all_checks() -> list[Check]:
    """Every check, in the order in which they run."""
    # By its name, since the files there import this one.
    catalogue = importlib.import_module("opsmith.checks.catalogue")
    for module in pkgutil.iter_modules(catalogue.__path__):
        importlib.import_module(f"{catalogue.__name__}.{module.name}")
    return sorted(_CHECKS.values(), key=lambda one: (one.order, one.name))


def selected(names: Sequence[str] | None, flags: Sequence[str] = ()) -> list[Check]:
    """The checks called `names`, all that need no flag where nothing is named; those of `flags`.

    Raises:
        UnknownCheckError: there is no such check, or no check has such a flag.
    """
    everything = all_checks()
    known = {one.name for one in everything}
    for name in names or ():
        if name not in known:
            raise UnknownCheckError(
                f"there is no check {name!r}; there are {', '.join(one.name for one in everything)}"
            )
    for flag in flags:
        if not any(one.flag == flag for one in everything):
            raise UnknownCheckError(f"no check has the flag {flag!r}")
    return [
        one
        for one in everything
        if (one.name in names if names else not one.flag) or (one.flag and one.flag in flags)
    ]
