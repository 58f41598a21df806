"""Which form each custom operator takes in an ONNX model, and why.

* ``standard``: ONNX's own operators, as `register_onnx` says. Runs anywhere, as fast as the
  runtime's own kernels.
* ``library``: one node in the operator's domain, run by the operator's own kernel from a library
  beside the model.
* ``inline``: the reference, taken apart into ONNX's operators. Runs anywhere.

Left to itself the best that works is taken, in this order.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from torch.fx import Node

from opsmith.errors import DeclarationError, ExportError
from opsmith.operators import Operator
from opsmith.operators.arguments import dtype_name
from opsmith.operators.translation import OnnxTranslation
from opsmith.signature.dtypes import COMPLEX
from opsmith.targets.artifact import OperatorUse
from opsmith.targets.onnx.node import NodeLayout

FORMS = ("standard", "library", "inline")


@dataclass(frozen=True)
class Choice:
    """The form of one operator.

    Attributes:
        operator: which.
        form: one of `FORMS`.
        note: what to know about it.
        translation: with ``standard``, how.
        library: with ``library``, whatever the runtime's target made of the kernel.
    """

    operator: Operator
    form: str
    note: str = ""
    translation: OnnxTranslation | None = None
    library: Any = None

    def use(self, count: int) -> OperatorUse:
        """The line of the report and the manifest."""
        return OperatorUse(self.operator.name, self.form, count, self.note)


Library = Callable[[Operator], tuple[Any, tuple[str, ...]]]
"""Makes the runtime's library of an operator: gives it, and the generic dtypes that it has (none
where the operator is not generic). Raises ExportError where there can be none."""


class Chooser:
    """Chooses a form for each operator of a model.

    Args:
        wanted: ``"auto"``, one form for all, or a form by operator name (others: ``"auto"``).
        opset: the opset that is exported.
        library: makes libraries, `None` for a target that has none.
    """

    def __init__(
        self, wanted: str | Mapping[str, str], opset: int, library: Library | None
    ) -> None:
        self._wanted = {} if isinstance(wanted, str) else dict(wanted)
        self._default = wanted if isinstance(wanted, str) else "auto"
        self._opset = opset
        self._library = library
        self._excluded: dict[Operator, dict[str, str]] = {}
        for name, form in [("", self._default), *self._wanted.items()]:
            if form not in ("auto", *FORMS):
                what = f" for {name}" if name else ""
                raise ExportError(
                    f"form={form!r}{what}; there are auto, {', '.join(FORMS)}, or a mapping from "
                    "operator names to these"
                )

    def require_known(self, names: list[str]) -> None:
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

    def exclude(self, operator: Operator, form: str, reason: str) -> None:
        """Take a form away that turned out not to work.

        Raises:
            ExportError: it is the one that was asked for.
        """
        if self._asked(operator) == form:
            raise ExportError(reason)
        self._excluded.setdefault(operator, {})[form] = reason

    def _asked(self, operator: Operator) -> str:
        return self._wanted.get(operator.name, self._default)

    def choose(self, operator: Operator, nodes: list[Node]) -> Choice:
        """The form of `operator`, whose calls are `nodes`.

        Raises:
            ExportError: the form that was asked for cannot be, or none can; says why for each.
        """
        asked = self._asked(operator)
        ways = {"standard": self._standard, "library": self._in_library, "inline": self._inline}
        forms = FORMS if asked == "auto" else (asked,)
        reasons = []
        for form in forms:
            try:
                excluded = self._excluded.get(operator, {}).get(form)
                if excluded:
                    raise ExportError(excluded)
                return ways[form](operator, nodes)
            except (ExportError, DeclarationError) as error:
                reasons.append((form, str(error)))
        if len(reasons) == 1:
            raise ExportError(reasons[0][1])
        known = f"{operator.name}: "
        lines = "\n".join(f"  {form}: {reason.removeprefix(known)}" for form, reason in reasons)
        raise ExportError(f"{operator.name}: ONNX cannot carry it in any form.\n{lines}")

    def _standard(self, operator: Operator, nodes: list[Node]) -> Choice:
        known = operator.onnx_translations
        if not known:
            raise ExportError(
                f"{operator.name}: says nothing of standard ONNX operators; "
                f"{operator.signature.name}.register_onnx is the way to say it"
            )
        usable = [t for t in known if t.opset <= self._opset]
        if not usable:
            first = min(t.opset for t in known)
            raise ExportError(
                f"{operator.name}: its standard form needs opset {first}, and the export is of "
                f"opset {self._opset}. Pass opset={first} or higher."
            )
        best = max(usable, key=lambda t: t.opset)
        note = best.how if isinstance(best.how, str) else ""
        return Choice(operator, "standard", note, translation=best)

    def _in_library(self, operator: Operator, nodes: list[Node]) -> Choice:
        if self._library is None:
            raise ExportError(
                f"{operator.name}: the library form is for a runtime with operator libraries "
                '(target="onnxruntime"); a bare ONNX file has none'
            )
        for node in nodes:
            _require_carried(operator, node)
        library, dtypes = self._library(operator)
        for node in nodes:
            generic = _generic_dtype(operator, node)
            if generic and dtypes and generic not in dtypes:
                raise ExportError(
                    f"{operator.name}: the model calls it in {generic}, and its CPU kernel has "
                    f"{', '.join(dtypes)}. Add {generic} to its OPSMITH_KERNEL line, or export it "
                    "in the inline form."
                )
        return Choice(operator, "library", library=library)

    def _inline(self, operator: Operator, nodes: list[Node]) -> Choice:
        return Choice(operator, "inline", "its reference")


def call_arguments(operator: Operator, node: Node) -> dict[str, Any]:
    """The arguments of a call in the program by name."""
    return operator.arguments(node.args, node.kwargs)


def _require_carried(operator: Operator, node: Node) -> None:
    """Refuse what a node of ONNX cannot hold.

    Raises:
        ExportError: naming the argument.
    """
    arguments = call_arguments(operator, node)
    NodeLayout(operator.signature).attribute_values(arguments)
    for parameter in operator.signature.tensors:
        value = arguments[parameter.name]
        for item in value if isinstance(value, list | tuple) else [value]:
            _require_dtype(operator, f"argument {parameter.name!r}", item)
    returned = node.meta.get("val")
    for item in returned if isinstance(returned, list | tuple) else [returned]:
        _require_dtype(operator, "its result", item)


def _require_dtype(operator: Operator, what: str, item: Any) -> None:
    value = item.meta.get("val") if isinstance(item, Node) else item
    if isinstance(value, Tensor) and dtype_name(value.dtype) in COMPLEX:
        raise ExportError(
            f"{operator.name}: {what} is {dtype_name(value.dtype)}, and ONNX Runtime computes with "
            "no complex numbers. Pass real and imaginary parts (torch.view_as_real)."
        )


def _generic_dtype(operator: Operator, node: Node) -> str | None:
    arguments = call_arguments(operator, node)
    for parameter in operator.signature.tensors:
        type_ = parameter.tensor_type
        if type_ is None or type_.shape is None or not type_.dtypes.generic:
            continue
        value = arguments[parameter.name]
        for item in value if isinstance(value, list | tuple) else [value]:
            tensor = item.meta.get("val") if isinstance(item, Node) else item
            if isinstance(tensor, torch.Tensor):
                return dtype_name(tensor.dtype)
    return None
