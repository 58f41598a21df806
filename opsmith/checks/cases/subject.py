"""The subject of a check: one operator, and one of its kernels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from opsmith import kernels
from opsmith.compat.torch_dispatch import has_kernel
from opsmith.errors import DeclarationError
from opsmith.kernels import HOST
from opsmith.operators import Operator
from opsmith.operators.adoption.adopted import AdoptedOperator
from opsmith.operators.core.arguments import DTYPES, case_dtype, generic_dtype
from opsmith.operators.core.operator import Kernel
from opsmith.operators.core.source_location import where_written
from opsmith.signature import Signature
from opsmith.signature.dtype_variables import fit, parts

REFERENCE = "reference"


@dataclass(frozen=True)
class Subject:
    """An operator, and the kernel that calls with tensors of one device type reach.

    Attributes:
        kernel: the name of the kernel in ``operator.kernels``, or `REFERENCE`, or the name of a
            kernel's variant in ``operator.variants``.
        device: the device type of the tensors.
        missing: the reason why the kernel cannot run on this machine; empty if it can.
    """

    operator: Operator
    kernel: str
    device: str
    missing: str = ""

    @property
    def signature(self) -> Signature:
        """Return the operator's signature."""
        return self.operator.signature

    @property
    def implementation(self) -> Kernel:
        """Return the kernel itself."""
        return self.operator.variants.get(self.kernel) or self.operator.kernels[self.kernel]

    def build(self) -> None:
        """Build and load the kernel."""
        if self.kernel in self.operator.variants:
            self.operator.variant(self.kernel)
        else:
            self.operator.build(self.device)

    @property
    def adopted(self) -> bool:
        """Return whether another library defined the operator, so that its own kernels run."""
        return isinstance(self.operator, AdoptedOperator)

    @cached_property
    def dtypes(self) -> tuple[str | None, ...]:
        """Return the kernel's generic dtypes; ``(None,)`` where every dtype is fixed."""
        generic = self.signature.generic
        if generic is None:
            return (None,)
        names = generic.names
        own = self.implementation.dtypes
        names = tuple(name for name in names if name in own) if own else names
        # The most common dtypes come first, so that a fault is reported with one of them.
        rank = {"float32": 0, "float64": 1}
        return tuple(sorted(names, key=lambda name: [rank.get(one, 2) for one in parts(name)]))

    @property
    def floats(self) -> tuple[str, ...]:
        """Return the dtypes that have gradients: floating-point and complex ones."""
        return tuple(name for name in self.dtypes if name is not None and is_float(name))

    @property
    def favourite(self) -> str | None:
        """Return the dtype for checks that need a single one: float32 if the kernel supports it."""
        return next(iter(self.floats), self.dtypes[0])


def is_float(name: str) -> bool:
    """Return whether a dtype, or one of a choice of dtypes, is floating-point or complex."""
    return any(DTYPES[one].is_floating_point or DTYPES[one].is_complex for one in parts(name))


def subjects_of(operator: Operator) -> list[Subject]:
    """Return one subject for each kernel of an operator that calls can reach."""
    devices = [name for name in operator.kernels if name != REFERENCE]
    found = [Subject(operator, name, name, _device(operator, name).missing()) for name in devices]
    if HOST not in devices and _reaches_reference(operator, HOST):
        found.insert(0, Subject(operator, REFERENCE, HOST))
    if not found:
        found.append(
            Subject(operator, REFERENCE, HOST, f"{operator.name} runs on no device type here")
        )
    return found


def subject_on(operator: Operator, device: str) -> Subject:
    """Return the subject for a device type: its own kernel, or else the reference."""
    kernel = device if device in operator.kernels else REFERENCE
    reaches = kernel != REFERENCE or _reaches_reference(operator, device)
    missing = "" if reaches else f"{operator.name} does not run on {device}"
    return Subject(operator, kernel, device, _device(operator, device).missing() or missing)


def _reaches_reference(operator: Operator, device: str) -> bool:
    key = _device(operator, device).dispatch_key
    everywhere = ("CompositeExplicitAutograd", "CompositeImplicitAutograd")
    return any(has_kernel(operator.name, one) for one in (key, *everywhere))


def _device(operator: Operator, name: str) -> kernels.Device:
    return kernels.get_device(name, operator.name)


def registered(operator: Operator, dtype: str | None, seed: int) -> Iterable[dict[str, Any]]:
    """Yield the arguments, by name, of the registered cases for a dtype.

    Leave out cases whose generic tensors have another dtype: a case function may ignore the dtype
    that it is called with.
    """
    asked = case_dtype(operator.signature, dtype)
    for function in operator.cases:
        for case in function(asked, seed):
            named = _named_arguments(operator.name, function, case)
            arguments = operator.arguments((), named)
            if fit(generic_dtype(operator.signature, arguments), dtype):
                yield arguments


def _named_arguments(name: str, function: Callable[..., object], case: object) -> dict[str, Any]:
    """Return a case that a function of `register_cases` yielded."""
    if not isinstance(case, Mapping):
        raise DeclarationError(
            f"{name}: register_cases: {where_written(function)}: a case is of type "
            f"{type(case).__name__}, expected a dictionary of arguments by name, "
            'e.g. {"x": x, "k": 2}.'
        )
    return dict(case)
