"""Choose the form that each custom operator has in an exported model."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from torch.fx import Node

from opsmith.errors import DeclarationError, ExportError, FormError, OpsmithError, OptionError
from opsmith.operators import Operator
from opsmith.targets.exporting.artifact import OperatorUse
from opsmith.untyped import Value

INLINE = "inline"
"""The form that every runtime supports: the operations of the reference replace the operator."""


@dataclass(frozen=True)
class Choice:
    """The form chosen for one operator.

    Attributes:
        form: one of the target's forms.
        note: something the user should know about the form.
        how: data that the target needs to write this form: a translation, a library.
    """

    operator: Operator
    form: str
    note: str = ""
    how: Value = None

    def use(self, count: int) -> OperatorUse:
        """Return the entry for the report and the manifest."""
        return OperatorUse(self.operator.name, self.form, count, self.note)


Choose = Callable[[Operator, Sequence[Node]], Choice]
"""Chooses a form for an operator and its calls; raises ExportError if the form is not possible."""


def inline(operator: Operator, nodes: Sequence[Node]) -> Choice:
    """Choose the inline form; whether the reference can be traced is found out later.

    Raises:
        FormError: the operator has no reference.
    """
    del nodes
    if not operator.explained:
        raise FormError(
            operator.name,
            "its declaration has no reference, which the inline form needs. Write one in plain "
            "PyTorch in place of '...'.",
        )
    values = any(parameter.constraints for parameter in operator.signature.tensors)
    note = "its reference, which does not compare values with the declaration"
    return Choice(operator, INLINE, note if values else "its reference")


class Chooser:
    """Chooses a form for each operator of a model.

    Args:
        wanted: ``"auto"``, one form for all operators, or a form by operator or operator name
            (``"auto"`` for the rest).
        forms: the target's forms, the preferred form first.
        runtime: name of the runtime, for messages.
        automatic: the forms that ``"auto"`` tries; all of them by default.

    Raises:
        ExportError: `wanted` is not one of the forms.
    """

    def __init__(
        self,
        wanted: str | Mapping[Any, str],  # a name or an operator; keys are invariant
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
                raise OptionError(
                    f"form={form!r}{what}; there are auto, {', '.join(forms)}, or a mapping from "
                    "operator names to these"
                )

    def require_known(self, names: Sequence[str]) -> None:
        """Refuse a mapping that names an operator which the model does not call.

        Raises:
            ExportError: naming the operator.
        """
        for name in self._wanted:
            if name not in names:
                raise ExportError(
                    f"form names {name!r}, which the model does not call; its custom operators are "
                    f"{', '.join(names) or 'none'}"
                )

    def exclude(self, operator: Operator, form: str, why: str) -> None:
        """Exclude a form that turned out not to work.

        Raises:
            FormError: no other form is left to try.
        """
        error = FormError(operator.name, why)
        if self._tried(operator) == (form,):
            raise error
        self._excluded.setdefault(operator, {})[form] = error

    def names(self, operator: Operator) -> bool:
        """Return whether the user named a form for this operator."""
        return operator.name in self._wanted

    def _tried(self, operator: Operator) -> tuple[str, ...]:
        asked = self._wanted.get(operator.name, self._default)
        return self._automatic if asked == "auto" else (asked,)

    def choose(self, operator: Operator, nodes: Sequence[Node]) -> Choice:
        """Return the form of `operator`, whose calls are `nodes`.

        Raises:
            ExportError: the requested form is not possible, or no form is; gives the reason for
                each.
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


def call_arguments(operator: Operator, node: Node) -> dict[str, object]:
    """Return the arguments of a call in the program by name."""
    return operator.arguments(node.args, node.kwargs)
