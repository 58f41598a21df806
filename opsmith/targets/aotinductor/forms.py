"""Which operators become libraries, and which are replaced by their references."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from opsmith.errors import ExportError
from opsmith.operators import Operator
from opsmith.targets.model import Model

FORMS = ("auto", "library", "inline")


def chosen_inline(model: Model, form: str | Mapping[str, str]) -> list[Operator]:
    """The operators of `model` that the option ``form`` asks to inline.

    ``auto`` is ``library``: taking the reference where a kernel is missing would run something
    else than what was asked for.

    Raises:
        ExportError: there is no such form, or the model does not call an operator that is named.
    """
    asked = {"": form} if isinstance(form, str) else dict(form)
    own = {operator.name: operator for operator in model.operators()}
    # One that is defined elsewhere runs as it is, unless it is named.
    present = {operator.name: operator for operator in model.operators(adopted=True)}
    for name, value in asked.items():
        if value not in FORMS:
            raise ExportError(f"form={value!r}; there are {', '.join(FORMS)}")
        if name and name not in present:
            there = ", ".join(present) or "none declared with opsmith"
            raise ExportError(f"form names {name!r}; the model calls {there}")
    default = asked.get("", "auto")
    return [
        operator
        for name, operator in present.items()
        if asked.get(name, default if name in own else "auto") == "inline"
    ]


def inlined(model: Model, operators: Sequence[Operator]) -> Model:
    """`model` with `operators` replaced by their references.

    Raises:
        ExportError: a reference cannot be traced.
    """
    if not operators:
        return model
    table: dict[Any, Any] = {operator._opoverload: operator.reference for operator in operators}
    try:
        program = model.program.run_decompositions(table)
    except Exception as error:
        names = ", ".join(operator.name for operator in operators)
        raise ExportError(f"the reference of {names} could not be traced:\n{error}") from error
    return dataclasses.replace(model, program=program)
