"""Which form each custom operator takes in an exported model, and why."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch.fx import Node

from opsmith.errors import DeclarationError, ExportError, FormError, OpsmithError
from opsmith.operators import Operator
from opsmith.targets.exporting.artifact import OperatorUse

INLINE = "inline"
"""The form that every runtime has: the reference, in the operator's place."""


@dataclass(frozen=True)
class Choice:
    """The form of one operator.

    Attributes:
        operator: which.
        form: one that the target has.
        note: what to know about it.
        how: whatever the target needs to write this form: a translation, a library.
    """

    operator: Operator
    form: str
    note: str = ""
    how: Any = None

    def use(self, count: int) -> OperatorUse:
        """The line of the report and the manifest."""
        return OperatorUse(self.operator.name, self.form, count, self.note)


Choose = Callable[[Operator, Sequence[Node]], Choice]
"""Takes an operator and its calls to a form; raises ExportError where it cannot be."""


def inline(operator: Operator, nodes: Sequence[Node]) -> Choice:
    """The reference; whether it can be traced is found when it is.

    Raises:
        FormError: there is none.
    """
    del nodes
    if not operator.explained:
        raise FormError(
            operator.name,
            "its declaration has no reference, which the inline form needs. Write one in plain "
            "PyTorch in place of '...'.",
        )
    return Choice(operator, INLINE, "its reference")


class Chooser:
    """Chooses a form for each operator of a model.

    Args:
        wanted: ``"auto"``, one form for all, or a form by operator, or its name (others:
            ``"auto"``).
        forms: the target's forms, the one to be preferred first.
        runtime: its name, for messages.
        automatic: the forms that ``"auto"`` tries; all of them by default.

    Raises:
        ExportError: `wanted` is not one of the forms.
    """

    def __init__(
        self,
        wanted: str | Mapping[Any, str],
        forms: Mapping[str, Choose],
        runtime: str,
        automatic: Sequence[str] | None = None,
    ) -> None:
        given = {} if isinstance(wanted, str) else wanted
        self._wanted = {getattr(key, "name", key): form for key, form in given.items()}
        self._default = wanted if isinstance(wanted, str) else "auto"
        self._forms = dict(forms)
        self._runtime = runtime
        self._automatic = tuple(forms if automatic is None else automatic)
        self._excluded: dict[Operator, dict[str, FormError]] = {}
        for name, form in [("", self._default), *self._wanted.items()]:
            if form not in ("auto", *forms):
                what = f" for {name}" if name else ""
                raise ExportError(
                    f"form={form!r}{what}; there are auto, {', '.join(forms)}, or a mapping from "
                    "operator names to these"
                )

    def require_known(self, names: Sequence[str]) -> None:
        """Refuse a mapping that names an operator which the model does not call.

        Raises:
            ExportError: naming it.
        """
        for name in self._wanted:
            if name not in names:
                raise ExportError(
                    f"form names {name!r}, which the model does not call; its custom operators are "
                    f"{', '.join(names) or 'none'}"
                )

    def exclude(self, operator: Operator, form: str, why: str) -> None:
        """Take a form away that turned out not to work.

        Raises:
            FormError: no other is to be tried.
        """
        error = FormError(operator.name, why)
        if self._tried(operator) == (form,):
            raise error
        self._excluded.setdefault(operator, {})[form] = error

    def names(self, operator: Operator) -> bool:
        """Whether a form was asked for by the operator's name."""
        return operator.name in self._wanted

    def _tried(self, operator: Operator) -> tuple[str, ...]:
        asked = self._wanted.get(operator.name, self._default)
        return self._automatic if asked == "auto" else (asked,)

    def choose(self, operator: Operator, nodes: Sequence[Node]) -> Choice:
        """The form of `operator`, whose calls are `nodes`.

        Raises:
            ExportError: the form that was asked for cannot be, or none can; says why for each.
        """
        excluded = self._excluded.get(operator, {})
        reasons: list[tuple[str, OpsmithError]] = []
        for form in self._tried(operator):
            if form in excluded:
                reasons.append((form, excluded[form]))
                continue
            try:
                return self._forms[form](operator, nodes)
            except (ExportError, DeclarationError) as error:
                reasons.append((form, error))
        if len(reasons) == 1:
            raise ExportError(str(reasons[0][1])) from reasons[0][1]
        known = f"{operator.name}: "
        lines = "\n".join(f"  {form}: {str(why).removeprefix(known)}" for form, why in reasons)
        raise ExportError(f"{operator.name}: {self._runtime} cannot carry it in any form.\n{lines}")


def call_arguments(operator: Operator, node: Node) -> dict[str, Any]:
    """The arguments of a call in the program by name."""
    return operator.arguments(node.args, node.kwargs)
