"""`opsmith.emulate`: tensors of the CPU through kernels that were written for another device."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from opsmith.errors import DeclarationError
from opsmith.kernels import HOST
from opsmith.kernels.language_registry import LANGUAGES
from opsmith.operators.core import registry
from opsmith.operators.defined import DefinedOperator
from opsmith.operators.dispatch.kernel import dispatch_key


@contextmanager
def emulate(device: str) -> Iterator[None]:
    """Within a ``with`` block, run calls with CPU tensors through the kernels of another device.

    CUDA C++ is compiled for the CPU when it is first called (``docs/reference/cuda.md`` says what
    that shows and what not), kernels in Triton run in its interpreter
    (``docs/reference/triton.md``). Gradients, ``torch.compile`` and so on take them as they would
    the kernels of the CPU. It is there to develop: a thread of CUDA takes about as long as a call
    of a function, a line of Triton longer.
    Operators without such a kernel stay as they are, and so do those that are declared within the
    block.

    Args:
        device: ``"cuda"``, for kernels registered with ``source="….cu"`` or ``triton=``.

    Raises:
        DeclarationError: opsmith emulates no such device, or no operator has a kernel for it.
        MissingDependencyError: in a call; the kernel uses what is not emulated, or Triton is not
            installed.
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
        operator
        for operator in registry.all_operators()
        if isinstance(operator, DefinedOperator) and _emulated(operator, device) is not None
    ]
    if not found:
        raise DeclarationError(
            f"opsmith.emulate({device!r}): no operator has a kernel registered with "
            f'source="…{suffixes[device]}" or triton='
        )
    with ExitStack() as stack:
        for operator in found:
            stack.enter_context(emulated_kernel(operator, device))
        yield


@contextmanager
def emulated_kernel(operator: DefinedOperator, device: str, seed: int = 0) -> Iterator[None]:
    """Within a ``with`` block, emulate one kernel for tensors of the CPU.

    Args:
        operator: whose kernel it is.
        device: the device type that it was written for.
        seed: see `Kernel.emulated`.
    """
    key = dispatch_key(HOST, operator.signature)
    function = _emulated(operator, device, seed)
    assert function is not None
    restore = _restorer(operator, key)
    operator._registration.implement(key, function)
    try:
        yield
    finally:
        restore()


def _emulated(operator: DefinedOperator, device: str, seed: int = 0) -> Callable[..., Any] | None:
    kernel = operator.kernels.get(device)
    return None if kernel is None else kernel.emulated(operator, seed)


def _restorer(operator: DefinedOperator, key: str) -> Callable[[], None]:
    """What puts the kernel of the CPU back that there was."""
    if HOST in operator.kernels:
        return lambda: operator.install_kernel(HOST)
    if operator._registration.implements(key):  # a reference for the CPU alone
        reference = operator.kernels["reference"].implementation(operator)
        return lambda: operator._registration.implement(key, reference)
    return lambda: operator._registration.withdraw_kernel(key)
