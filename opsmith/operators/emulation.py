"""`opsmith.emulate`: tensors of the CPU through kernels that were written for another device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from opsmith import kernels
from opsmith.errors import DeclarationError
from opsmith.kernels import HOST
from opsmith.kernels.languages import LANGUAGES
from opsmith.operators import registry
from opsmith.operators.kernel import NativeKernel
from opsmith.operators.operator import DefinedOperator


@contextmanager
def emulate(device: str) -> Iterator[None]:
    """Within a ``with`` block, run calls with CPU tensors through the kernels of another device.

    The kernels are compiled for the CPU when they are first called; see ``docs/cuda.md`` for what
    that shows and what not. Gradients, ``torch.compile`` and so on take them as they would the
    kernels of the CPU. It is there to develop: a thread of CUDA takes about as long as a call of a
    function. Operators without such a kernel stay as they are, and so do those that are declared
    within the block.

    Args:
        device: ``"cuda"``, for kernels registered with ``source="….cu"``.

    Raises:
        DeclarationError: opsmith emulates no such device, or no operator has a kernel for it.
        MissingError: in a call; the kernel uses what is not emulated.
        BuildError: in a call; the kernel does not compile.

    Example:
        >>> import opsmith
        >>> opsmith.emulate("npu").__enter__()
        Traceback (most recent call last):
        opsmith.errors.DeclarationError: opsmith.emulate('npu'): there is 'cuda'
    """
    suffixes = {language.emulates: language.suffixes[0] for language in LANGUAGES}
    if not device or device not in suffixes:
        there = ", ".join(repr(known) for known in suffixes if known)
        raise DeclarationError(f"opsmith.emulate({device!r}): there is {there}")
    found = [
        (operator, source)
        for operator in registry.all_operators()
        if isinstance(operator, DefinedOperator)
        and (kernel := operator.kernels.get(device)) is not None
        and kernel.source is not None
        and (source := kernel.source.language.emulated(kernel.source)) is not None
    ]
    if not found:
        raise DeclarationError(
            f"opsmith.emulate({device!r}): no operator has a kernel registered with "
            f'source="…{suffixes[device]}"'
        )
    with ExitStack() as stack:
        for operator, source in found:
            stack.enter_context(_emulated(operator, source))
        yield


@contextmanager
def _emulated(operator: DefinedOperator, source: kernels.KernelSource) -> Iterator[None]:
    registration = operator._registration
    key = kernels.get_device(HOST, operator.name).dispatch_key
    kernel = NativeKernel(source, lambda: 0)

    def build_then_run(*args: Any, **kwargs: Any) -> Any:
        kernel.source.build()  # which may fail; what is registered stays until it has not
        registration.withdraw_kernel(key)
        kernel.library = registration.native(key, kernel)
        registration.native_autograd(operator)
        return operator.overload(*args, **kwargs)

    restore = _restorer(operator, key)
    registration.implement(key, build_then_run)
    try:
        yield
    finally:
        restore()


def _restorer(operator: DefinedOperator, key: str) -> Callable[[], None]:
    """What puts the kernel of the CPU back that there was."""
    if HOST in operator.kernels:
        return lambda: operator.install_kernel(HOST)
    if operator._registration.implements(key):  # a reference for the CPU alone
        reference = operator.kernels["reference"].implementation(operator)
        return lambda: operator._registration.implement(key, reference)
    return lambda: operator._registration.withdraw_kernel(key)
