"""opsmith's checks in a test suite of one's own.

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
from typing import TYPE_CHECKING, Any

from opsmith import checks
from opsmith.checks.report.rows import Row
from opsmith.checks.run_report import Report
from opsmith.checks.worker_pool import keep_workers
from opsmith.errors import CheckError, OpsmithError
from opsmith.operators import Operator
from opsmith.operators.classes import CustomClass, Method

if TYPE_CHECKING:
    from opsmith.checks.cases.subject import Subject
    from opsmith.checks.protocol import Check

__all__ = ["Suite", "cases", "check", "parametrize", "suite"]


Checkable = Operator | CustomClass | Method
"""What can be checked: an operator, a custom class (all its methods), or one of its methods."""


def check(
    operators: Checkable | Iterable[Checkable],
    *,
    select: Sequence[str] | None = None,
    seed: int = 0,
    examples: int = 60,
    seconds: float = 20.0,
    time_limit: float = 60.0,
    isolate: bool = False,
    allow_cut_short: bool = False,
) -> Report:
    """Run every check, and raise if one fails.

    Args:
        operators: what to check: operators, custom classes, methods of custom classes.
        select: names of checks; all by default.
        seed: decides every sample.
        examples: how many cases a check samples, shared among the dtypes.
        seconds: after this long a check samples no further case.
        time_limit: the seconds that one call may take, with `isolate`.
        isolate: whether kernels run in another process, so that one that crashes fails the test
            and does not end the test run. The first such check takes a few seconds to start; it
            needs operators that a file declares at its top level.
        allow_cut_short: whether a check has passed that ran out of time before it had tried enough.

    Returns:
        The report.

    Raises:
        CheckError: a check failed or was cut short, or of an operator nothing was checked; the
            message names operator, check and the smallest failing case, and says how to repeat it.

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
        # Where there is one such test, there are more.
        keep_workers()
    report: Report = checks.run(operators, **options)
    return report


def operators_of(what: Any) -> list[Operator]:
    """The operators that checks of `what` run.

    Raises:
        OpsmithError: it cannot be checked.
    """
    if isinstance(what, Operator):
        return [what]
    if isinstance(what, Method):
        return [what.operator]
    if isinstance(what, CustomClass):
        # A method that only returns a field has no operator, and nothing to check.
        return [m.operator for m in what.methods.values() if m.model.operator is not None]
    if isinstance(what, Iterable) and not isinstance(what, str):
        return [operator for one in what for operator in operators_of(one)]
    raise OpsmithError(
        f"{what!r} cannot be checked: pass an operator (opsmith.op), a custom class "
        "(opsmith.custom_class), one of its methods, or several of these"
    )


def cases(
    operator: Operator | Method, *, dtype: str | None = None, seed: int = 0, examples: int = 20
) -> Iterator[dict[str, Any]]:
    """Arguments that fit the declaration: those of `register_cases`, then sampled ones.

    Args:
        operator: whose; a method of a custom class takes its fields first.
        dtype: the generic dtype (``"float32"``); float32 by default if the operator takes it.
        seed: decides the samples.
        examples: how many are sampled; none for ``register_cases(only=True)``.

    Yields:
        The arguments by name; tensors on the CPU, of which some are not contiguous.
    """
    from opsmith.checks.cases.layouts import LAYOUTS
    from opsmith.checks.cases.sampling import Wanted
    from opsmith.checks.cases.subject import subjects_of
    from opsmith.checks.trial import Settings, Trial

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
    """One check of one operator, as a function without arguments."""

    operator: Operator
    name: str
    options: dict[str, Any]
    unbuilt: set[str]
    """The operators whose build failed in another of these tests: it is not tried again."""

    def __call__(self) -> Report:
        """Run it; skip the test where the check says nothing about the operator.

        Raises:
            CheckError: it failed, or the operator was not built.
        """
        import pytest

        from opsmith.checks.runner import NOT_BUILT

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
    operators: Checkable | Iterable[Checkable],
    *,
    select: Sequence[str] | None = None,
    argument: str = "check",
    **options: Any,
) -> Any:
    """A pytest decorator that makes one test for each check of each operator.

    Args:
        operators: what to check.
        select: names of checks; all by default.
        argument: the test's parameter that gets the check, a function to call.
        options: further options of `check`.
    """
    import pytest

    unbuilt: set[str] = set()
    parameters = [
        pytest.param(
            _OneCheck(operator, one.name, options, unbuilt), id=f"{operator.name}-{one.name}"
        )
        for operator in operators_of(operators)
        for one in _selected(select)
        if one.subjects(operator)
    ]
    return pytest.mark.parametrize(argument, parameters)


def _selected(names: Sequence[str] | None) -> Any:
    from opsmith.checks.protocol import selected

    return selected(names)


def suite(
    operators: Checkable | Iterable[Checkable],
    *,
    select: Sequence[str] | None = None,
    skip: Sequence[str] = (),
    flags: Sequence[str] = (),
    **options: Any,
) -> Suite:
    """One pytest test for each check of each kernel of some operators.

    The result, under a test's name in a test module, is collected by the plugin that is installed
    with opsmith; ``test_my_op[cpu-reference]`` is one of its tests. They have the marks
    ``opsmith``, ``device(name="cpu")``, and ``slow`` where they compile. What does not apply to a
    kernel is skipped, with the reason.

    Args:
        operators: what to check: operators, custom classes, methods of custom classes.
        select: names of checks; all by default.
        skip: names of checks to leave out.
        flags: asks for further checks, such as ``"sanitize_address"``.
        options: further options of `check`: seed, examples, seconds, time_limit, isolate,
            allow_cut_short.

    Returns:
        What pytest collects.

    Raises:
        OpsmithError: `operators` cannot be checked.
        UnknownCheckError: there is no such check.
    """
    return Suite(tuple(operators_of(operators)), select, tuple(skip), tuple(flags), options)


@dataclass
class Suite:
    """Tests for the pytest plugin to collect; see `suite`.

    Attributes:
        operators: what is checked.
        select: names of checks; all by default.
        skip: names of checks to leave out.
        flags: asks for further checks.
        options: those of `check`.
    """

    operators: tuple[Operator, ...]
    select: Sequence[str] | None = None
    skip: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    options: dict[str, Any] = field(default_factory=dict)

    # What the plugin, which does not import this module, knows a suite by.
    _is_opsmith_suite = True

    def __post_init__(self) -> None:
        from opsmith.checks.protocol import selected

        selected([*(self.select or ()), *self.skip] or None, self.flags)

    def tests(self, **chosen: Any) -> Iterator[OneTest]:
        """Every test, in the order in which `opsmith check` runs them.

        Args:
            chosen: options that go before the suite's own.
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
    """One check of one kernel.

    Attributes:
        subject: the operator and the kernel.
        check: what is run.
        options: those of `check`.
        unbuilt: operators and kernels whose build failed in another test of the suite.
        several: whether the suite has other operators, so that this one is named.
    """

    subject: Subject
    check: Check
    options: dict[str, Any]
    unbuilt: set[tuple[str, str]]
    several: bool = False

    @property
    def id(self) -> str:
        """``cpu-reference``, after the operator's name where there are several."""
        name = f"{self.subject.operator.name}-" if self.several else ""
        return f"{name}{self.subject.kernel}-{self.check.name}"

    @property
    def device(self) -> str:
        """The device type of the kernel."""
        return self.subject.device

    @property
    def slow(self) -> bool:
        """Whether it compiles, or is slow otherwise."""
        return self.check.time_limit > 1 or bool(self.check.flag)

    @property
    def where(self) -> tuple[str, int | None]:
        """The file and the line, from 0, that declare the operator."""
        code = getattr(self.subject.operator.reference, "__code__", None)
        return ("", None) if code is None else (code.co_filename, code.co_firstlineno - 1)

    def run(self) -> Row:
        """Run it; what came out, or why the kernel does not build.

        The first test of a kernel that does not build fails, whatever it checks, and the others
        are not run: without the test of the build, a suite would else skip all that it has.
        """
        from opsmith.checks.runner import NOT_BUILT, not_run

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
