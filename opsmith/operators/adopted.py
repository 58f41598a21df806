"""An operator that somebody else defined, and the registry of those that were adopted."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from opsmith.compat.torch_ops import OpOverload
from opsmith.errors import DeclarationError, OpsmithError
from opsmith.operators.core.operator import Operator
from opsmith.operators.core.registry import Registry
from opsmith.operators.defined import DefinedOperator
from opsmith.operators.dispatch.kernel import PythonKernel
from opsmith.signature import Signature

_ADOPTED: Registry[AdoptedOperator] = Registry("operator", "adopted")


@dataclass(frozen=True)
class Specification:
    """How an operator got its declaration.

    Attributes:
        name: the operator under test as it was named, ``torchvision::nms`` or ``aten::add.Tensor``.
        declared: the operator of the spec whose declaration it has; empty where the spec adopts it.
        modules: what was imported so that it is there, by name and as it was named.
    """

    name: str
    declared: str
    modules: tuple[tuple[str, str], ...] = ()


class AdoptedOperator(Operator):
    """An operator that somebody else defined; see `Operator` for what it can do.

    Calls go to the operator as it is. What only a definition can have, kernels and derivatives,
    cannot be registered.

    Attributes:
        specification: how it got its declaration, where that is not its own.
    """

    specification: Specification | None = None

    def __init__(
        self, signature: Signature, reference: Callable[..., Any], overload: OpOverload
    ) -> None:
        super().__init__(signature, reference, overload, PythonKernel("reference", reference))

    @property
    def name(self) -> str:
        """``namespace::name``, or ``namespace::name.overload``: overloads are operators too."""
        return str(self._opoverload.name())

    def __repr__(self) -> str:
        return f"<adopted operator {self._opoverload}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return _again, (str(self._opoverload),)


def _refuse(self: AdoptedOperator, *args: Any, **kwargs: Any) -> Any:
    raise DeclarationError(
        f"{self.name}: is defined elsewhere, so it takes no kernel and no derivative from "
        "here. Declare an operator of your own (opsmith.op), and call it in the reference."
    )


for _name in vars(DefinedOperator):
    # torch.library.CustomOpDef has most of them too, and would touch what is not ours.
    if not _name.startswith("_") and _name not in vars(Operator):
        setattr(AdoptedOperator, _name, _refuse)


def all_adopted() -> tuple[AdoptedOperator, ...]:
    """Every operator that was adopted by its name, in order."""
    return _ADOPTED.all()


def find_adopted(overload: Any) -> AdoptedOperator | None:
    """The adopted operator behind an ``OpOverload``, or `None`."""
    try:
        return _ADOPTED.find(overload)
    except TypeError:
        return None


def _again(name: str) -> AdoptedOperator:
    for operator in _ADOPTED.all():
        if str(operator.overload) == name:
            return operator
    raise OpsmithError(f"{name} was not adopted in this process")


def add_adopted(operator: AdoptedOperator) -> None:
    """Register an adopted operator under its overload."""
    _ADOPTED.add(operator.overload, operator)
