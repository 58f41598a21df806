"""Kernels of an operator: a Python function, or C++ that is built when first needed."""

from __future__ import annotations

import functools
import os
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import torch

from opsmith import kernels
from opsmith.compat.torch_dispatch import (
    CONJUGATE,
    NEGATIVE,
    is_passed_over,
    key_set,
    set_passed_over,
)
from opsmith.compat.torch_ops import OpOverload
from opsmith.errors import DeclarationError
from opsmith.operators.core import registry
from opsmith.operators.core.lazy import late
from opsmith.operators.core.operator import RegisteredOperator
from opsmith.operators.core.source_location import where_written
from opsmith.signature import Signature
from opsmith.system.products import import_product
from opsmith.untyped import Arguments, Value

_HOST_KEYS = key_set("CPU")


def dispatch_key(device: str, signature: Signature) -> str:
    """Return the dispatch key of an operator's kernel for a device type.

    Raises:
        DeclarationError: PyTorch lacks the device type, or no call would reach the kernel.
    """
    what = f"{signature.qualname}: register_kernel({device!r})"
    return kernels.dispatch_key(device, signature, what)


def device_types_of(signature: Signature, given: str | Sequence[str]) -> list[str]:
    """Return the device types that ``register_kernel`` of an operator was given.

    Raises:
        DeclarationError: `given` is neither a string nor a sequence of strings, or no call would
            reach the kernel; see `dispatch_key`.
    """
    devices = [given] if isinstance(given, str) else given
    if isinstance(devices, Sequence) and all(isinstance(one, str) for one in devices):
        for device in devices:
            dispatch_key(device, signature)
        return list(devices)
    hint = "; where none is registered, the reference runs" if given is None else ""
    raise DeclarationError(
        f'{signature.qualname}: register_kernel: expected a device type, as in "cpu", or a '
        f"sequence of these, got {given!r}{hint}"
    )


def host_kernel_without_tensors(
    operator: RegisteredOperator, reference: Callable[..., object]
) -> Callable[..., Value]:
    """Return a function that runs the reference, or the host's kernel if a call has no tensors.

    The dispatch key of the host is not set in such a call, so the dispatcher cannot find its
    kernel.
    """

    def run(*args: object, **kwargs: object) -> object:
        from opsmith.operators.core.arguments import every_tensor_in

        if kernels.HOST not in operator.kernels or not operator.is_enabled(kernels.HOST):
            return reference(*args, **kwargs)
        if any(True for _ in every_tensor_in(operator.arguments(args, kwargs))):
            return reference(*args, **kwargs)
        return operator.overload.redispatch(_HOST_KEYS, *args, **kwargs)

    return run


@dataclass
class PythonKernel:
    """A kernel that is a Python function.

    Attributes:
        device: the device type, or ``"reference"`` for the decorated function itself.
        function: takes the operator's arguments, returns its results.
        ran: how often the function ran in this process.
    """

    device: str
    function: Callable[..., Value]
    ran: int = 0
    source: ClassVar[None] = None
    entry: ClassVar[kernels.KernelSource | None] = None
    dissolves: ClassVar[bool] = False

    @property
    def calls(self) -> int:
        """Return how often the function ran in this process."""
        return self.ran

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Return nothing: a function does not state its dtypes."""
        return ()

    @property
    def where(self) -> str:
        """Return the location of the function's source, for messages."""
        return where_written(self.function) or repr(self.function)

    def build(self, operator: RegisteredOperator) -> Path | None:
        """Return `None`: the kernel needs no building."""
        del operator
        return None

    def implementation(self, operator: RegisteredOperator) -> Callable[..., Value]:
        """Return a function that validates a call, runs it, and checks its results."""
        return late(lambda: self._implementation(operator))

    def _implementation(self, operator: RegisteredOperator) -> Callable[..., Value]:
        from opsmith.operators.core.overlap import keep_apart
        from opsmith.operators.core.validation import Validator, checked_results, result_test

        signature, function = operator.signature, self.function
        validate, apart = Validator(signature), keep_apart(signature)
        arguments_of, split = operator.arguments, operator.split
        label = "the reference" if self.device == "reference" else f"the {self.device} kernel"
        fits = result_test(signature)

        def compute(arguments: Arguments) -> object:
            positional, keywords = split(apart(arguments))
            return _materialised(function(*positional, **keywords))

        def run(*args: object, **kwargs: object) -> object:
            # Compiled code excludes these keys when it calls kernels. With them excluded, a lazily
            # conjugated or negated tensor would be read unchanged from memory.
            lazy = not (is_passed_over(CONJUGATE) or is_passed_over(NEGATIVE))
            valid = None if kwargs else validate.remembered(args)
            if valid is not None and lazy:
                self.ran += 1
                returned = function(*args)
                if fits(args, valid, returned):
                    return returned
                returned = _materialised(returned)
                return checked_results(signature, arguments_of(args, {}), valid, returned, label)
            arguments = arguments_of(args, kwargs)
            valid = validate(arguments)
            self.ran += 1
            if lazy:
                returned = compute(arguments)
            else:
                with set_passed_over(CONJUGATE, False), set_passed_over(NEGATIVE, False):
                    returned = compute(arguments)
            return checked_results(signature, arguments, valid, returned, label)

        return run

    def emulated(self, operator: RegisteredOperator, seed: int = 0) -> Callable[..., object] | None:
        """Return `None`: a Python function for another device cannot be emulated."""
        del operator, seed
        return None


def _materialised(returned: object) -> object:
    """Resolve lazy conjugation and negation of results, since readers of raw memory ignore them."""
    if isinstance(returned, torch.Tensor):
        return returned.resolve_conj().resolve_neg()
    if isinstance(returned, list | tuple):
        items = [_materialised(item) for item in returned]
        return items if isinstance(returned, list) else tuple(items)
    return returned


@dataclass
class NativeKernel:
    """A kernel that is compiled from source.

    Attributes:
        source: the source and how it is compiled.
        count: returns how often the kernel was called, for a kernel that does not count itself.
        library: the loaded library; `None` until it is needed.
    """

    source: kernels.KernelSource
    count: Callable[[], int]
    library: kernels.Library | None = None
    dissolves: ClassVar[bool] = False

    @property
    def device(self) -> str:
        """Return the device type of the source."""
        return self.source.device

    @property
    def validates(self) -> bool:
        """Return whether the compiled kernel validates arguments itself."""
        return self.source.language.has_entry

    @property
    def entry(self) -> kernels.KernelSource | None:
        """Return the source if its language exports a C symbol, else `None`."""
        return self.source if self.source.language.has_entry else None

    @property
    def where(self) -> str:
        """Return the path of the source, for messages."""
        return str(self.source.path)

    @property
    def calls(self) -> int:
        """Return how often the kernel was called in this process."""
        if self.library is None:
            return 0
        return self.library.calls() if self.validates else self.count()

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Return the generic dtypes of the loaded library; empty until it is loaded."""
        return () if self.library is None else self.library.dtypes()

    def implementation(self, operator: RegisteredOperator) -> Callable[..., object]:
        """Return a function that builds on its first call, so that importing is cheap."""
        self.library = None

        def build_then_run(*args: object, **kwargs: object) -> object:
            self.build(operator)
            return operator.overload(*args, **kwargs)

        return build_then_run

    def emulated(self, operator: RegisteredOperator, seed: int = 0) -> Callable[..., object] | None:
        """Return a function that compiles the kernel for the CPU on its first call, or `None`."""
        del seed
        source = self.source.language.emulated(self.source)
        if source is None:
            return None
        key = dispatch_key(kernels.HOST, operator.signature)
        registration, kernel = operator._registration, NativeKernel(source, lambda: 0)

        def build_then_run(*args: object, **kwargs: object) -> object:
            source.build()  # may fail; so keep the registered kernel until it has succeeded
            registration.withdraw_kernel(key)
            if not kernel.validates:  # it registers itself for its own device, too
                registration.withdraw_kernel(dispatch_key(source.device, operator.signature))
            kernel.library = registration.native(key, kernel)
            registration.native_autograd(operator)
            return operator.overload(*args, **kwargs)

        return build_then_run

    def build(self, operator: RegisteredOperator) -> Path:
        """Build and load the kernel, unless it is loaded, and return the library's path."""
        if self.library is None:
            _load([(operator, self), *self._sharing(operator)])
        assert self.library is not None
        return self.library.path

    def overload(self, operator: RegisteredOperator) -> OpOverload:
        """Return the operator, without derivatives, that calls this variant of a kernel."""
        name = re.sub(r"\W+", "_", f"{operator.signature.name}_{self.source.variant}").strip("_")
        return operator._registration.variant(name, self)  # type: ignore[no-any-return]

    def _sharing(
        self, operator: RegisteredOperator
    ) -> list[tuple[RegisteredOperator, NativeKernel]]:
        """Return the other operators whose kernels are in the same library, and these kernels."""
        found = []
        for other in registry.all_operators():
            kernel = other.kernels.get(self.device)
            if (
                other is not operator
                and isinstance(kernel, NativeKernel)
                and self.source.shares_library(kernel.source)
            ):
                found.append((other, kernel))
        return found


def native_kernel(
    operator: RegisteredOperator, device: str, source: object, options: dict[str, Value]
) -> NativeKernel:
    """Return the kernel that is compiled from a file, or is in a module of tvm-ffi.

    The options are those of `DefinedOperator.register_kernel`.

    Raises:
        DeclarationError: the file does not exist, or does not suit its options.
    """
    if not isinstance(source, str | Path):
        modules = import_product("opsmith.kernels.languages.tvm_ffi", operator.name)
        source = modules.file_of(source, options["function"], operator.name)
    assert isinstance(source, str | Path)
    path = source_path(source, operator.reference, operator.name)

    def others() -> list[kernels.KernelSource]:
        """Return the sources of the other operators' kernels for the device in the same file."""
        found = [op.kernels.get(device) for op in registry.all_operators() if op is not operator]
        sources = [kernel.source for kernel in found if kernel is not None]
        return [one for one in sources if one is not None and one.path == path]

    options = {k: tuple(v) if isinstance(v, list) else v for k, v in options.items()}
    made = kernels.kernel_source(operator.signature, device, path, others=others, **options)
    key = dispatch_key(device, operator.signature)
    return NativeKernel(made, functools.partial(operator._registration.guarded_calls, key))


def _load(loading: Sequence[tuple[RegisteredOperator, NativeKernel]]) -> None:
    """Build kernels that share one library, load it, and install each kernel in its operator."""
    from opsmith.operators.dispatch.gates import argument_gate, autograd_gate

    with autograd_gate.built_beside([operator for operator, _ in loading]):
        # A build may fail, so keep the registered kernels until all have succeeded.
        for operator, kernel in loading:
            kernel.source.build()
            if not kernel.validates:
                argument_gate.build(operator.signature)
    keys = [(o, k, dispatch_key(k.device, o.signature)) for o, k in loading]
    for operator, _, key in keys:
        operator._registration.withdraw_kernel(key)  # PyTorch warns when a kernel is overwritten
    try:
        for operator, kernel, key in keys:
            kernel.library = operator._registration.native(key, kernel)
            operator._registration.native_autograd(operator)
    finally:
        for operator, kernel, _ in keys:
            # The library also registered the kernels of disabled operators.
            if kernel.library is None or not operator.is_enabled(kernel.device):
                operator.install_kernel(kernel.device)


def source_path(source: str | Path, function: Callable[..., object], qualname: str) -> Path:
    """Return the path of a kernel's source; it is relative to the file that declares the operator.

    Raises:
        DeclarationError: the file does not exist.
    """
    path = os.path.expanduser(source)
    if not os.path.isabs(path):
        code = getattr(function, "__code__", None)
        here = os.path.dirname(code.co_filename) if code is not None else ""
        # A notebook cell has no folder of its own.
        known = os.path.isdir(here) and not here.startswith("<")
        path = os.path.join(here if known else os.getcwd(), path)
    if not os.path.isfile(path):
        raise DeclarationError(
            f"{qualname}: register_kernel(source={str(source)!r}): there is no file {path}"
        )
    return Path(os.path.realpath(path))
