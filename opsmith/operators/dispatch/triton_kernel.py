"""Kernels that launch Triton, either directly by opsmith or in a function of the user's.

``torch.compile`` traces into them, as it does with ``torch.library.triton_op``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import ClassVar

import torch
from torch import Tensor

from opsmith.compat.torch_tracing import capturing_triton, functional_mode, keeps_triton_operators
from opsmith.errors import DeclarationError, MissingDependencyError
from opsmith.kernels import HOST, KernelSource, get_device
from opsmith.kernels.languages.triton import TritonKernel, require_triton, triton_missing
from opsmith.kernels.libraries import prebuilt
from opsmith.operators.core.arguments import describe, tensors
from opsmith.operators.core.operator import RegisteredOperator
from opsmith.operators.core.source_location import code_of
from opsmith.operators.dispatch.fake import as_returned, check_size, empty_results
from opsmith.operators.dispatch.kernel import NativeKernel, PythonKernel, dispatch_key
from opsmith.signature import Signature, bind
from opsmith.signature.calls import named
from opsmith.system.products import import_product
from opsmith.untyped import Args, Arguments, Untyped, Value


@dataclass
class TritonLauncher(PythonKernel):
    """A Python kernel that launches Triton through ``torch.library.wrap_triton``.

    Attributes:
        kernel: the Triton kernel, if opsmith wrote the function; `None` if the user did.
        file: the file that declares the operator.
        sizes: the sizes registered with `register_sizes`.
    """

    kernel: TritonKernel | None = field(default=None, kw_only=True)
    file: Path = field(default_factory=Path, kw_only=True)
    sizes: Sequence[Mapping[str, int]] = field(default=(), kw_only=True)
    dissolves: ClassVar[bool] = True  # Compiled code contains the Triton kernel itself.
    _library: NativeKernel | None = field(default=None, init=False, repr=False)

    @property
    def calls(self) -> int:
        """Return how often the function or the prebuilt library ran in this process."""
        return self.ran + (0 if self._library is None else self._library.calls)

    @property
    def dtypes(self) -> tuple[str, ...]:
        """Return the generic dtypes of the prebuilt library; empty without one."""
        return () if self._library is None else self._library.dtypes

    @property
    def where(self) -> str:
        """Return the location of the Triton kernel's source, or of the user's function."""
        return super().where if self.kernel is None else self.kernel.where

    @property
    def entry(self) -> KernelSource | None:  # type: ignore[override]
        """Return the source that Triton compiles ahead of time; `None` for a user's function."""
        if self.kernel is None:
            return None
        from opsmith.kernels.languages.triton.language import Triton

        return KernelSource(
            self.kernel.signature,
            self.device,
            self.file,
            Triton(self.kernel, self.sizes),
            strided=self.kernel.strided,
        )

    def implementation(self, operator: RegisteredOperator) -> Callable[..., Value]:
        """Return a function that runs the package's prebuilt library if it fits, else Triton."""
        self._library = None
        launch = self._launching(operator)
        if not self._shipped():
            return launch

        def choose_then_run(*args: object, **kwargs: object) -> object:
            if self.build(operator) is None:
                key = dispatch_key(self.device, operator.signature)
                operator._registration.implement(key, launch)
            return operator.overload(*args, **kwargs)

        return choose_then_run

    def build(self, operator: RegisteredOperator) -> Path | None:
        """Load the prebuilt library of an installed package, if it is used; nothing is compiled.

        Raises:
            MissingDependencyError: the package has a library, and neither it nor Triton works on
                this machine.
        """
        if self._library is None:
            source = self.entry
            if source is None or not self._library_serves(operator.name):
                return None
            self._library = NativeKernel(source, lambda: 0)
        return self._library.build(operator)

    def _shipped(self) -> list[Arguments]:
        """Return the descriptions of the prebuilt libraries that came with the package."""
        if self.kernel is None:
            return []
        return prebuilt.listed(self.file, self.kernel.signature.qualname, self.device)

    def _library_serves(self, name: str) -> bool:
        """Return whether calls use a prebuilt library of the package, and not Triton."""
        there = self._shipped()
        if not there:
            return False
        device, what = get_device(self.device, name), f"{name} ({self.device})"
        missing = device.missing()
        if missing:
            raise MissingDependencyError(
                f"{what}: a library came with {self.file.parent}; there is {missing}"
            )
        architectures = sorted({number for one in there for number in one["architectures"]})
        others = prebuilt.not_compiled_for(architectures, device.architectures())
        if not device.toolkit():
            others = ["ROCm"]  # PyTorch uses the device type "cuda" for its GPUs too
        compiles = not triton_missing()
        if others and not compiles:
            listed = ", ".join(f"sm_{number}" for number in architectures)
            raise MissingDependencyError(
                f"{what}: the library that came with {self.file.parent} is for {listed}, and this "
                f"machine has {', '.join(others)}. {triton_missing()}"
            )
        # Triton also handles sizes for which the library was not compiled.
        return not others and not (compiles and any(one["sizes"] for one in there))

    def _launching(self, operator: RegisteredOperator) -> Callable[..., object]:
        run = super().implementation(operator)

        def launch(*args: object, **kwargs: object) -> object:
            # The tensors are real, so no tracer has to capture the launches.
            with capturing_triton(False):
                return run(*args, **kwargs)

        return launch

    def emulated(self, operator: RegisteredOperator, seed: int = 0) -> Callable[..., object]:
        """Return a function that runs the kernel on CPU tensors in Triton's interpreter.

        The function raises `MissingDependencyError` if Triton is not installed, and `FaultError`
        if a program relies on behaviour that a GPU does not guarantee.
        """
        run = self._launching(operator)

        def interpret(*args: object, **kwargs: object) -> object:
            what = f"{operator.name} ({self.device})"
            require_triton(what)
            emulation = import_product("opsmith.kernels.languages.emulated_triton", what)
            with emulation.interpreted(seed), _uninitialized_memory_is_filled():
                return run(*args, **kwargs)

        return interpret


@contextmanager
def _uninitialized_memory_is_filled() -> Iterator[None]:
    """Fill the memory of ``torch.empty`` with NaN or maximal values, so that reading it shows."""
    before = torch.are_deterministic_algorithms_enabled()
    warns = torch.is_deterministic_algorithms_warn_only_enabled()
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        yield
    finally:
        torch.use_deterministic_algorithms(before, warn_only=warns)


def check_arguments(
    name: str,
    triton: object,
    grid: object,
    meta: object,
    args: object,
    function: object,
    source: str | Path | None,
) -> None:
    """Refuse arguments of ``register_kernel`` that exclude each other.

    Args:
        name: the operator's name.
        triton: the argument of ``register_kernel``, like the following ones.
        grid: number of programs.
        meta: the kernel's constants.
        args: values for its other parameters.
        function: a kernel in Python.
        source: a file.

    Raises:
        DeclarationError: the arguments do not go together; the message says which do.
    """
    if triton and triton is not True:
        if function is not None or source is not None:
            raise DeclarationError(
                f"{name}: give either a function, or source=, or a kernel as triton="
            )
        if grid is None:
            raise DeclarationError(
                f"{name}: register_kernel(triton=…) needs grid=, the number of programs to "
                "launch: grid=lambda N, BLOCK: (triton.cdiv(N, BLOCK),)"
            )
    elif grid is not None or meta is not None or args is not None:
        raise DeclarationError(
            f"{name}: register_kernel: grid=, meta= and args= describe the launch of a kernel "
            "that triton= gives, and there is none"
        )
    elif triton and source is not None:
        raise DeclarationError(
            f"{name}: triton=True says that a Python function launches kernels in Triton; "
            "source= is for C++ and CUDA"
        )


def launching(
    operator: RegisteredOperator,
    device: str,
    triton: object,
    grid: Value,
    meta: Arguments | Callable[..., Arguments] | None,
    args: Arguments | None,
    strided: bool | Sequence[str],
) -> TritonLauncher:
    """Return a kernel that launches `triton`; the arguments are those of ``register_kernel``."""
    reference = operator.reference
    kernel = TritonKernel(
        operator.signature,
        device,
        triton,
        grid,
        meta or {},
        args or {},
        strided if isinstance(strided, bool) else tuple(strided),
        getattr(reference, "__globals__", {}).get("__package__"),
    )
    function = _launch_function(operator.signature, kernel)
    function.__module__ = reference.__module__  # the module that declares the operator
    code = code_of(reference)
    file = Path(code.co_filename if code is not None else "").resolve()
    return TritonLauncher(device, function, kernel=kernel, file=file, sizes=operator.sizes)


def _launch_function(signature: Signature, kernel: TritonKernel) -> Callable[..., object]:
    """Return a function that allocates the results of a call and launches a kernel on them."""
    arguments_of = named(signature)
    taken = [p.name for p in signature.parameters if p.is_tensor]
    strided = kernel.strided if isinstance(kernel.strided, tuple) else ()
    contiguous = [n for n in taken if n not in strided] if kernel.strided is not True else []
    written = {parameter.name for parameter in signature.mutated}

    def launch(*args: object, **kwargs: object) -> object:
        given = arguments_of(args, kwargs)
        bindings = bind(signature, describe(given, signature), check_size)
        results = empty_results(signature, bindings, given)
        arguments = dict(given)
        for name in contiguous:
            if given[name] is not None:
                arguments[name] = given[name].contiguous()
        values = {
            **bindings.dims,
            **bindings.variadic,
            **arguments,
            **{r.name: tensor for r, tensor in zip(signature.results, results, strict=True)},
        }
        constants = kernel.constants(values)
        grid = kernel.programs(values, constants)
        if all(count != 0 for count in grid):
            function: Untyped = torch.library.wrap_triton(kernel.function)
            function[grid](**kernel.arguments(values, constants))
            for name in contiguous:
                if name in written and arguments[name] is not given[name]:
                    given[name].copy_(arguments[name])
        return as_returned(results)

    return launch


def see_through(operator: RegisteredOperator) -> None:
    """Let a compiler that captures an operator's calls trace into its Triton kernels.

    Calls with tensors of other devices remain calls of the operator. So do calls in exported
    programs, which are saved for other readers.
    """

    def decompose(mode: Untyped, op: object, types: object, args: Args, kwargs: Arguments) -> Value:
        kernel = _launcher_for(operator, args, kwargs)
        if kernel is None or keeps_triton_operators():
            return mode.__torch_dispatch__(op, types, args, kwargs)
        with mode:
            return kernel.function(*args, **kwargs)

    operator._registration.torch_dispatch(functional_mode(), decompose)


def _launcher_for(
    operator: RegisteredOperator, args: Args, kwargs: Arguments
) -> TritonLauncher | None:
    """Return the Triton kernel that a call reaches; `None` if the call reaches another kernel."""
    given: list[Tensor] = tensors(operator.arguments(args, kwargs), operator.signature)
    device = given[0].device.type if given else HOST
    kernel = operator.kernels.get(device)
    if not isinstance(kernel, TritonLauncher) or not operator.is_enabled(device):
        return None
    # Without Triton, the prebuilt library runs, and a compiler cannot trace into a library.
    return None if triton_missing() and kernel._shipped() else kernel
