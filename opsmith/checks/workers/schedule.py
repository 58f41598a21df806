"""Decide which row runs next when several run in parallel, and report rows in order."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence

from opsmith.checks.cases.subject import Subject
from opsmith.checks.isolation.import_location import module_of
from opsmith.checks.protocol import PLAIN_CALLS, QUICK, Check
from opsmith.checks.report.rows import Row

Progress = Callable[[int, int, str], None]
"""Receives the number of finished rows, the number of all rows, and what is running now."""

Planned = tuple[Subject, Check]


class Schedule:
    """Hands out the rows of a plan, and collects their results.

    The first runner goes through the plan from the beginning, where rows are quick. The other
    runners are its helpers. They begin with rows that compile: with those of ``--quick``, which
    find most, then with the last ones of the plan, which take longest. A helper stays with one
    runtime as long as it can, so that it imports each runtime's modules once. Helpers begin with
    the last runtime of a kernel, so that they and the first runner meet in the middle. Rows of one
    module and runtime share an export, and run in parallel only if no other row is left. A kernel
    is built before its other rows run.

    Args:
        progress: called whenever a row begins, and at the end; by one thread at a time.
        on_row: called with the rows in the order of the plan, with each as soon as it and the rows
            before it are done.
        settle: returns the row to keep for a position and its row; called in the order of the plan.

    Attributes:
        alone: whether there is no helper; the rows then run in the order of the plan.
    """

    def __init__(
        self,
        plan: Sequence[Planned],
        progress: Progress | None = None,
        on_row: Callable[[Row], None] | None = None,
        settle: Callable[[int, Row], Row] = lambda position, row: row,
    ) -> None:
        self.alone = False
        self._plan = plan
        #: By kernel: the position of each check.
        self._places: dict[tuple[str, str], dict[str, int]] = {}
        for position, planned in enumerate(plan):
            self._places.setdefault(kernel_of(planned[0]), {})[planned[1].name] = position
        self._progress = progress
        self._on_row = on_row
        self._settle = settle
        self._waiting = list(range(len(plan)))
        self._returned: list[int] = []
        self._running: list[int] = []
        self._rows: dict[int, Row] = {}
        self._told = 0
        self._error: BaseException | None = None
        self._ended = False
        self._changed = threading.Condition()

    def helpers(self) -> int:
        """Return the number of useful helpers: no more than there are rows that compile."""
        compiling = sum(check.compiles for _, check in self._plan)
        builds = sum(check.name == "build" for _, check in self._plan)
        return max(0, min(compiling, max(builds, len(self._plan) - builds) - 1))

    def take(self, helper_of: str | None = None) -> int | None:
        """Return the position of the row to run next; wait until a row is ready.

        Args:
            helper_of: the runtime of a helper's last row, empty for its first row; `None` for the
                first runner.

        Returns:
            None if no row is left.

        Raises:
            BaseException: an exception of a helper, raised in the first runner.
        """
        with self._changed:
            while not self._ended:
                position = self._next(helper_of)
                if position is not None:
                    self._running.append(position)
                    self._tell()
                    return position
                # A row that a helper cannot run is given back to the first runner.
                mine = not self._waiting if helper_of is not None else not self._left()
                if mine:
                    return None
                self._changed.wait()
            if self._error is not None and helper_of is None:
                raise self._error
            return None

    def give(self, position: int, row: Row) -> None:
        """Store the result of a row; ignore it if the schedule has ended."""
        with self._changed:
            self._running.remove(position)
            if self._ended:
                return
            self._rows[position] = row
            while self._is_settled(self._told):
                self._rows[self._told] = self._settle(self._told, self._rows[self._told])
                if self._on_row is not None:
                    self._on_row(self._rows[self._told])
                self._told += 1
            if self._running or not self._left():
                self._tell()
            self._changed.notify_all()

    def give_back(self, position: int) -> None:
        """Leave a row to the first runner."""
        with self._changed:
            self._running.remove(position)
            self._returned.append(position)
            self._changed.notify_all()

    def end(self, error: BaseException | None = None) -> None:
        """Stop handing out rows."""
        with self._changed:
            self._ended = True
            self._error = self._error or error
            self._changed.notify_all()

    def rows(self) -> list[Row]:
        """Return all rows, in the order of the plan."""
        return [self._rows[position] for position in sorted(self._rows)]

    # --- under the lock ----------------------------------------------------------------------

    def _left(self) -> bool:
        return bool(self._waiting or self._returned or self._running)

    def _next(self, helper_of: str | None) -> int | None:
        if helper_of is None and self._returned:
            return self._returned.pop(0)
        ready = [position for position in self._waiting if self._is_ready(position)]
        if not ready:
            return None
        running = {self._plan[position][1].runtime for position in self._running}
        exporting = {self._export(position) for position in self._running}

        def rank(position: int) -> tuple[bool, bool, bool, bool, bool, int, int]:
            check = self._plan[position][1]
            if self.alone or (helper_of is None and not check.compiles):
                return False, False, False, False, False, 0, position
            unwanted = check.compiles == (helper_of is None)
            other = check.runtime != helper_of
            kernel = list(self._places).index(kernel_of(self._plan[position][0]))
            turn = (0, position) if helper_of is None else (kernel, -position)
            waits = self._export(position) in exporting
            elsewhere = other and check.runtime in running
            return unwanted, check.name not in QUICK, waits, other, elsewhere, *turn

        found = min(ready, key=rank)
        self._waiting.remove(found)
        return found

    def _export(self, position: int) -> tuple[str, str]:
        """Return the module and the runtime of a row; rows that share both share an export."""
        subject, check = self._plan[position]
        return module_of(subject.operator), check.runtime

    def _is_ready(self, position: int) -> bool:
        check = self._plan[position][1]
        return check.name == "build" or self._are_done(position, ("build", *check.needs))

    def _is_settled(self, position: int) -> bool:
        """Return whether a row ended and, if it failed, so did those that may tell its cause."""
        row = self._rows.get(position)
        return row is not None and (row.status != "failed" or self._are_done(position, PLAIN_CALLS))

    def _are_done(self, position: int, names: Sequence[str]) -> bool:
        """Return whether the checks of these names are done for the kernel of a row."""
        places = self._places[kernel_of(self._plan[position][0])]
        return all(places[name] in self._rows for name in names if name in places)

    def _tell(self) -> None:
        if self._progress is None:
            return
        what: list[str] = []
        for position in self._running:
            subject, check = self._plan[position]
            name = f"{subject.operator.name} {subject.kernel} "
            what.append(check.name if what and what[0].startswith(name) else f"{name}{check.name}")
        self._progress(len(self._rows), len(self._plan), ", ".join(what))


def kernel_of(subject: Subject) -> tuple[str, str]:
    """Return the names of an operator and its kernel."""
    return subject.operator.name, subject.kernel
