"""`opsmith.emulate`: run kernels that were written for another device on CPU tensors."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

from opsmith.errors import DeclarationError
from opsmith.kernels import HOST
from opsmith.kernels.language_registry import languages
from opsmith.operators.core import registry
from opsmith.operators.defined import DefinedOperator
from opsmith.operators.dispatch.kernel import dispatch_key
from opsmith.untyped import Value


@contextmanager
def emulate(device: str) -> Iterator[None]:
    """Run calls with CPU tensors through the kernels of another device, in a ``with`` block.

    CUDA C++ and Ascend C are compiled for the CPU when first called, and Triton kernels run in
    Triton's interpreter (cuda.md, npu.md and triton.md in ``docs/reference/``). Gradients and
    ``torch.compile`` treat them like kernels for the CPU. It is for development, and slow.

    Operators without such a kernel do not change, nor do operators that are declared in the block.

    Args:
        device: ``"cuda"`` (``source="….cu"``, ``triton=``) or ``"npu"`` (``language="ascendc"``).

    Raises:
        DeclarationError: opsmith cannot emulate the device, or no operator has a kernel for it.
        MissingDependencyError: in a call: it uses what is not emulated, or Triton is missing.
        BuildError: in a call: the kernel does not compile.

    Example:
        >>> import opsmith
        >>> opsmith.emulate("tpu").__enter__()
        Traceback (most recent call last):
        opsmith.errors.DeclarationError: opsmith.emulate('tpu'): expected 'cuda' or 'npu'
    """
    emulated = {language.emulates: language for language in languages() if language.emulates}
    if device not in emulated:
        there = " or ".join(map(repr, sorted(emulated)))
        raise DeclarationError(f"opsmith.emulate({device!r}): expected {there}")
    found = [
        operator
        for operator in registry.all_operators()
        if isinstance(operator, DefinedOperator) and _emulated(operator, device) is not None
    ]
    if not found:
        asked = emulated[device].asked
        how = f", language={asked!r}" if asked else " or triton="
        raise DeclarationError(
            f"opsmith.emulate({device!r}): no operator has a kernel registered with "
            f'source="…{emulated[device].suffixes[0]}"{how}'
        )
    with ExitStack() as stack:
        for operator in found:
            stack.enter_context(emulated_kernel(operator, device))
        yield


@contextmanager
def emulated_kernel(operator: DefinedOperator, device: str, seed: int = 0) -> Iterator[None]:
    """Emulate one kernel on CPU tensors, in a ``with`` block.

    Args:
        device: the device type for which the kernel was written.
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


def _emulated(operator: DefinedOperator, device: str, seed: int = 0) -> Callable[..., Value] | None:
    kernel = operator.kernels.get(device)
    return None if kernel is None else kernel.emulated(operator, seed)


def _restorer(operator: DefinedOperator, key: str) -> Callable[[], None]:
    """Return a function that restores the earlier kernel for the CPU."""
    if HOST in operator.kernels:
        return lambda: operator.install_kernel(HOST)
    if operator._registration.implements(key):  # a reference that supports only the CPU
        reference = operator.kernels["reference"].implementation(operator)
        return lambda: operator._registration.implement(key, reference)
    return lambda: operator._registration.withdraw_kernel(key)
