"""Operators that another library defined, and the registry of adopted operators."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from opsmith.compat.torch_ops import OpOverload
from opsmith.errors import DeclarationError, OpsmithError
from opsmith.operators.core.operator import Operator, RegisteredOperator
from opsmith.operators.core.registry import Registry
from opsmith.operators.defined import DefinedOperator
from opsmith.operators.dispatch.kernel import PythonKernel
from opsmith.signature import Signature

_ADOPTED: Registry[AdoptedOperator] = Registry("operator", "adopted")


@dataclass(frozen=True)
class Specification:
    """The origin of an operator's declaration.

    Attributes:
        name: the operator under test, as the user named it: ``torchvision::nms`` or
            ``aten::add.Tensor``.
        declared: the operator of the spec file whose declaration is used; empty if the spec file
            adopts the operator itself.
        modules: the modules imported so that the operator exists, as pairs of the module's name and
            the user's name for it.
    """

    name: str
    declared: str
    modules: tuple[tuple[str, str], ...] = ()


class AdoptedOperator(Operator):
    """An operator that another library defined, with the interface of `Operator`.

    Calls go to the existing operator. Kernels and derivatives cannot be registered, since only the
    library that defines an operator can add them.

    Attributes:
        specification: the origin of the declaration, if another operator or a spec file provides
            it.
    """

    specification: Specification | None = None

    def __init__(
        self, signature: Signature, reference: Callable[..., object], overload: OpOverload
    ) -> None:
        super().__init__(signature, reference, overload, PythonKernel("reference", reference))

    @property
    def name(self) -> str:
        """Return ``namespace::name``, or ``namespace::name.overload`` for a named overload."""
        return str(self._opoverload.name())

    def __repr__(self) -> str:
        return f"<adopted operator {self._opoverload}>"

    def __reduce__(self) -> tuple[object, ...]:
        return _again, (str(self._opoverload),)


def _refuse(self: AdoptedOperator, *args: object, **kwargs: object) -> object:
    raise DeclarationError(
        f"{self.name}: another library defines this operator, so it cannot get a kernel or a "
        "derivative here. Declare your own operator (opsmith.op), and call it in the reference."
    )


for _name in {**vars(DefinedOperator), **vars(RegisteredOperator)}:
    # torch.library.CustomOpDef has most of them too, and would modify an operator of another
    # library.
    if not _name.startswith("_") and _name not in vars(Operator):
        setattr(AdoptedOperator, _name, _refuse)


def all_adopted() -> tuple[AdoptedOperator, ...]:
    """Return every operator that was adopted by its name, in order."""
    return _ADOPTED.all()


def find_adopted(overload: object) -> AdoptedOperator | None:
    """Return the adopted operator of an ``OpOverload``, or `None`."""
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
