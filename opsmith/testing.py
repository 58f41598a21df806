"""Run opsmith's checks in a test suite.

::

    import opsmith.testing
    from my_ops import my_op

    def test_my_op() -> None:
        opsmith.testing.check(my_op)

or one test for each check of each kernel, collected by the pytest plugin that comes with opsmith::

    test_my_op = opsmith.testing.suite(my_op)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from opsmith import checks
from opsmith.checks.cases.subject import Subject, subjects_of
from opsmith.checks.protocol import Check, selected
from opsmith.checks.report.rows import Row
from opsmith.checks.run_report import Report
from opsmith.checks.workers.worker_pool import keep_workers
from opsmith.errors import CheckError, OpsmithError
from opsmith.operators import Operator
from opsmith.operators.core.source_location import code_of

__all__ = ["Suite", "cases", "check", "parametrize", "suite"]


def check(
    operators: Operator | Iterable[Operator],
    *,
    select: Sequence[str] | None = None,
    seed: int = 0,
    examples: int = 60,
    seconds: float = 60.0,
    time_limit: float = 60.0,
    isolate: bool = False,
    allow_cut_short: bool = False,
) -> Report:
    """Run every check, and raise if one fails.

    Args:
        operators: the operators to check.
        select: names of checks; all by default.
        seed: decides every sample.
        examples: number of cases that a check samples, shared among the dtypes.
        seconds: after this long a check samples no further case.
        time_limit: the seconds that one call may take, with `isolate`.
        isolate: whether kernels run in another process, so that a crash fails the test instead of
            ending the test run. The first such check takes a few seconds to start. The operators
            must be declared at the top level of a file.
        allow_cut_short: whether a check passes if it ran out of time before it had tried enough
            cases.

    Returns:
        The report.

    Raises:
        CheckError: a check failed or was cut short, or nothing was checked for an operator. The
            message names the operator, the check and the smallest failing case, and tells how to
            repeat it.

    Example:
        >>> import opsmith, opsmith.testing
        >>> from jaxtyping import Float
        >>> from torch import Tensor
        >>> @opsmith.op("docs::triple", autograd="reference")
        ... def triple(x: Float[Tensor, "*shape"]) -> Float[Tensor, "*shape"]:
        ...     return x * 3
        >>> opsmith.testing.check(triple, select=["reference"]).ok
        True
    """
    __tracebackhide__ = True  # pytest shows the caller
    report = _run(
        operators_of(operators),
        select=select,
        seed=seed,
        examples=examples,
        seconds=seconds,
        time_limit=time_limit,
        isolate=isolate,
        allow_cut_short=allow_cut_short,
    )
    report.raise_failures()
    return report


def _run(operators: Sequence[Operator], **options: Any) -> Report:
    if options.get("isolate"):
        # A process that runs one isolated test usually runs more of them.
        keep_workers()
    report: Report = checks.run(operators, **options)
    return report


def operators_of(what: Any) -> list[Operator]:
    """Return the operators to run for checks of `what`.

    Raises:
        OpsmithError: `what` cannot be checked.
    """
    if isinstance(what, Operator):
        return [what]
    if isinstance(what, Iterable) and not isinstance(what, str):
        return [operator for one in what for operator in operators_of(one)]
    raise OpsmithError(
        f"{what!r} cannot be checked: pass an operator (opsmith.op), or several of them"
    )


def cases(
    operator: Operator, *, dtype: str | None = None, seed: int = 0, examples: int = 20
) -> Iterator[dict[str, Any]]:
    """Yield arguments that fit the declaration: those of `register_cases`, then sampled ones.

    Args:
        operator: the operator.
        dtype: the generic dtype (``"float32"``); float32 by default if the operator supports it.
        seed: decides the samples.
        examples: number of samples; with ``register_cases(only=True)`` nothing is sampled.

    Yields:
        The arguments by name; tensors on the CPU, some of which are not contiguous.
    """
    from opsmith.checks.cases.layouts import LAYOUTS
    from opsmith.checks.cases.settings import Settings
    from opsmith.checks.cases.wanted import Wanted
    from opsmith.checks.trial.trial import Trial

    found: list[dict[str, Any]] = []
    (found_operator,) = operators_of(operator)
    subject = subjects_of(found_operator)[0]
    trial = Trial(subject, "cases", Settings(seed, examples))

    def keep(case: Any) -> None:
        trial.accept(case)
        found.append(case.make())

    wanted = Wanted(layouts=LAYOUTS)
    trial.each(keep, dtypes=(dtype or subject.favourite,), wanted=wanted)
    yield from found


@dataclass(frozen=True)
class _OneCheck:
    """A check of an operator, as a function without arguments."""

    operator: Operator
    name: str
    options: dict[str, Any]
    unbuilt: set[str]
    """Operators whose build failed in another of these tests; the build is not tried again."""

    def __call__(self) -> Report:
        """Run the check; skip the test if the check does not apply to the operator.

        Raises:
            CheckError: the check failed, or the operator was not built.
        """
        import pytest

        from opsmith.checks.row_history import NOT_BUILT

        __tracebackhide__ = True  # pytest shows the caller
        if self.operator.name in self.unbuilt:
            raise CheckError(
                f"{self.operator.name}: {NOT_BUILT}; the first of these tests that failed says why"
            )
        options = {"isolate": False, **self.options}
        report = _run([self.operator], select=[self.name], **options)
        if any(row.check == "build" for row in report.failures):
            self.unbuilt.add(self.operator.name)
        if report.unchecked and not report.failures:
            pytest.skip(report.explain())
        report.raise_failures()
        return report


def parametrize(
    operators: Operator | Iterable[Operator],
    *,
    select: Sequence[str] | None = None,
    argument: str = "check",
    **options: Any,
) -> Any:
    """Return a pytest decorator that makes one test for each check of each operator.

    Args:
        operators: the operators to check.
        select: names of checks; all by default.
        argument: the test's parameter that receives the check, a function to call.
        options: further options of `check`.
    """
    import pytest

    unbuilt: set[str] = set()
    parameters = [
        pytest.param(
            _OneCheck(operator, one.name, options, unbuilt), id=f"{operator.name}-{one.name}"
        )
        for operator in operators_of(operators)
        for one in selected(select)
        if one.subjects(operator)
    ]
    return pytest.mark.parametrize(argument, parameters)


def suite(
    operators: Operator | Iterable[Operator],
    *,
    select: Sequence[str] | None = None,
    skip: Sequence[str] = (),
    flags: Sequence[str] = (),
    **options: Any,
) -> Suite:
    """Make one pytest test for each check of each kernel of some operators.

    Assign the result to a test's name in a test module; the plugin installed with opsmith collects
    it. One of its tests is ``test_my_op[cpu-reference]``. The tests have the marks ``opsmith``,
    ``device(name="cpu")``, and ``slow`` if they compile. A check that does not apply to a kernel is
    skipped, with the reason.

    Args:
        operators: the operators to check.
        select: names of checks; all by default.
        skip: names of checks to leave out.
        flags: turn on further checks, such as ``"sanitize_address"``.
        options: further options of `check`: seed, examples, seconds, time_limit, isolate,
            allow_cut_short.

    Returns:
        A suite for pytest to collect.

    Raises:
        OpsmithError: `operators` cannot be checked.
        UnknownCheckError: a name or a flag belongs to no check.
    """
    return Suite(tuple(operators_of(operators)), select, tuple(skip), tuple(flags), options)


@dataclass
class Suite:
    """Tests for the pytest plugin to collect; see `suite`.

    Attributes:
        operators: the operators to check.
        select: names of checks; all by default.
        skip: names of checks to leave out.
        flags: turn on further checks.
        options: options of `check`.
    """

    operators: tuple[Operator, ...]
    select: Sequence[str] | None = None
    skip: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)

    # Lets the plugin recognize a suite without importing this module.
    _is_opsmith_suite = True

    def __post_init__(self) -> None:
        selected([*(self.select or ()), *self.skip] or None, self.flags)

    def tests(self, **chosen: Any) -> Iterator[OneTest]:
        """Yield every test, in the order in which `opsmith check` runs them.

        Args:
            chosen: options that override the suite's own.
        """
        from opsmith.checks.runner import planned

        wanted = set(self.select or ())
        options = {**self.options, **chosen}
        unbuilt: set[tuple[str, str]] = set()
        for subject, one in planned(self.operators, self.select, self.flags):
            asked = not wanted or one.name in wanted or one.flag in self.flags
            if asked and one.name not in self.skip:
                yield OneTest(subject, one, options, unbuilt, len(self.operators) > 1)


@dataclass(frozen=True)
class OneTest:
    """A check of a kernel.

    Attributes:
        subject: the operator and the kernel.
        check: the check to run.
        options: options of `check`.
        unbuilt: operators and kernels whose build failed in another test of the suite.
        several: whether the suite has several operators, so that the test's name includes this one.
    """

    subject: Subject
    check: Check
    options: dict[str, Any]
    unbuilt: set[tuple[str, str]]
    several: bool = False

    @property
    def id(self) -> str:
        """The test's id: ``cpu-reference``, after the operator's name if there are several."""
        name = f"{self.subject.operator.name}-" if self.several else ""
        return f"{name}{self.subject.kernel}-{self.check.name}"

    @property
    def device(self) -> str:
        """The device type of the kernel."""
        return self.subject.device

    @property
    def slow(self) -> bool:
        """Return whether the check compiles, or is slow for another reason."""
        return self.check.time_limit > 1 or bool(self.check.flag)

    @property
    def where(self) -> tuple[str, int | None]:
        """The file of the operator's declaration, and its line, counted from 0."""
        code = code_of(self.subject.operator.reference)
        return ("", None) if code is None else (code.co_filename, code.co_firstlineno - 1)

    def run(self) -> Row:
        """Run the check; return its row, or the row of the kernel's failed build.

        If a kernel does not build, the first of its tests to run fails, and its other tests are not
        run. Otherwise a suite without the test of the build would skip all its tests.
        """
        from opsmith.checks.row_history import NOT_BUILT, not_run

        name, kernel = self.check.name, self.subject.kernel
        built = self.subject.operator.name, kernel
        if built in self.unbuilt and name != "build":
            return not_run(self.check, self.subject, NOT_BUILT)
        options = {"isolate": False, **self.options}
        report = _run([self.subject.operator], select=[name], **options)
        rows = {(row.check, row.kernel): row for row in report.rows}
        build = rows.get(("build", kernel))
        if build is not None and build.status == "failed":
            self.unbuilt.add(built)
            return build
        return rows[name, kernel]
