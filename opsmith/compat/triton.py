"""Triton's interpreter, which Triton itself can only turn on for a whole process.

Every name exists in each release from 3.6 on. Triton may not be installed, so it is imported late.
"""

from __future__ import annotations

from collections.abc import Callable

from opsmith.compat.patch import Patch
from opsmith.untyped import Args, Arguments, Untyped


def _interpreter() -> Untyped:
    from triton.runtime import interpreter

    return interpreter


def _kernels() -> object:
    from triton.runtime import jit

    return jit.JITFunction


def _autotuned() -> object:
    from triton.runtime import autotuner

    return autotuner.Autotuner


def launches_by(make: Callable[[object], object]) -> Patch:
    """Return a block in which kernels are launched by another function."""
    return Patch(_kernels, "run", make)


def calls_by(make: Callable[[object], object]) -> Patch:
    """Return a block in which a function that a kernel calls is called by another function."""
    return Patch(_kernels, "__call__", make)


def autotuned_launches_by(make: Callable[[object], object]) -> Patch:
    """Return a block in which autotuned kernels are launched by another function."""
    return Patch(_autotuned, "run", make)


def _indexed(patch_tensor: Untyped) -> object:
    def patched(tensor: object, scope: Untyped) -> None:
        patch_tensor(tensor, scope)
        # A loop bound is a one-element array, which newer NumPy refuses to convert to int.
        scope.set_attr(tensor, "__index__", lambda self: int(self.handle.data.item()))

    return patched


#: A block in which a number that a kernel computed may be the bound of a loop.
#:
#: Private: ``triton.runtime.interpreter._patch_lang_tensor``. Without it, kernels with such loops
#: are not interpreted.
numbers_as_bounds = Patch(_interpreter, "_patch_lang_tensor", _indexed)


def memory_by(make: Callable[[object], object]) -> Patch:
    """Return a block in which interpreted programs access memory through another object.

    Private: ``triton.runtime.interpreter._interpreter``, which loads and stores. Without it,
    accesses outside the tensors, and races, are not found.
    """
    return Patch(_interpreter, "_interpreter", make)


def masked_loads_by(make: Callable[[Untyped], object]) -> Patch:
    """Return a block in which interpreted programs load by another function where they mask.

    Private: ``triton.runtime.interpreter.InterpreterBuilder.create_masked_load``. Without it, the
    lanes that a mask leaves out are 0, which a device does not promise.
    """
    return Patch(lambda: _interpreter().InterpreterBuilder, "create_masked_load", make)


def programs_by(make: Callable[[Untyped], object]) -> Patch:
    """Return a block in which another function tells the interpreter which program it runs.

    Private: ``triton.runtime.interpreter.interpreter_builder.set_grid_idx``. Without it, programs
    run in one order.
    """
    return Patch(lambda: _interpreter().interpreter_builder, "set_grid_idx", make)


def called(function: Untyped, args: Args, kwargs: Arguments) -> object:
    """Call a function that an interpreted kernel calls.

    Private: ``triton.runtime.interpreter._patch_lang``. Without it, kernels that call functions are
    not interpreted.
    """
    from triton.runtime import interpreter

    patched = interpreter._patch_lang(function.fn)
    try:
        return function.rewrite()(*args, **kwargs)
    finally:
        patched.restore()
