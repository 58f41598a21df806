"""opsmith's checks in a test suite of one's own.

::

    import opsmith.testing
    from my_ops import my_op

    def test_my_op() -> None:
        opsmith.testing.check(my_op)

or one test for each check::

    @opsmith.testing.parametrize(my_op)
    def test_my_op(check) -> None:
        check()
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from opsmith import checks
from opsmith.checks.report import Report
from opsmith.errors import OpsmithError
from opsmith.operators import Operator
from opsmith.operators.classes import CustomClass, Method

__all__ = ["cases", "check", "parametrize"]


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
            and does not end the test run. It costs a few seconds to start, and needs operators
            that a file declares at its top level.

    Returns:
        The report.

    Raises:
        CheckError: a check failed; the message names operator, check and the smallest failing
            case, and says how to repeat it.

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
    report: Report = checks.run(
        operators_of(operators),
        select=select,
        seed=seed,
        examples=examples,
        seconds=seconds,
        time_limit=time_limit,
        isolate=isolate,
    )
    report.raise_failures()
    return report


def operators_of(what: Any) -> list[Operator]:
    """The operators that checks of `what` run.

    Raises:
        OpsmithError: it is nothing that can be checked.
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
    from opsmith.checks.layouts import LAYOUTS
    from opsmith.checks.sampling import Wanted
    from opsmith.checks.subject import subjects_of
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

    def __call__(self) -> Report:
        """Run it.

        Raises:
            CheckError: it failed.
        """
        return check(self.operator, select=[self.name], **self.options)


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

    parameters = [
        pytest.param(_OneCheck(operator, one.name, options), id=f"{operator.name}-{one.name}")
        for operator in operators_of(operators)
        for one in _selected(select)
        if one.subjects(operator)
    ]
    return pytest.mark.parametrize(argument, parameters)


def _selected(names: Sequence[str] | None) -> Any:
    from opsmith.checks.protocol import selected

    return selected(names)
