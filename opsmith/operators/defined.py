"""An operator of our own: what its author registers with it, and PyTorch's dispatcher."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from opsmith.compat.torch_dispatch import key_set
from opsmith.errors import DeclarationError, MissingDependencyError
from opsmith.kernels import DEVICES, HOST, KernelSource, find_device, get_device, kernel_source
from opsmith.operators.core import registry
from opsmith.operators.core.lazy import late
from opsmith.operators.core.operator import Kernel, Operator, RegisteredOperator
from opsmith.operators.core.rule import Rule
from opsmith.operators.core.source_location import where_written
from opsmith.operators.dispatch import autocast, graph_caches
from opsmith.operators.dispatch.kernel import NativeKernel, PythonKernel, dispatch_key, source_path
from opsmith.operators.dispatch.registration import Registration
from opsmith.signature import Signature
from opsmith.signature.suggestions import refuse_unknown_keywords

if TYPE_CHECKING:
    from opsmith.operators.dispatch.declared_backward import DeclaredBackward

_HOST_KEYS = key_set("CPU")


class DefinedOperator(RegisteredOperator):
    """An operator of our own, which takes kernels, derivatives and rules; see `Operator`."""

    def __init__(
        self,
        signature: Signature,
        reference: Callable[..., Any],
        *,
        rule: Rule,
        device_types: Sequence[str] | None,
        tags: Sequence[torch.Tag],
    ) -> None:
        self._registration = Registration(signature, tags, where_written(reference))
        own = PythonKernel("reference", reference)
        super().__init__(signature, reference, self._registration.overload, own)
        self.rule = rule
        self.declared_backward: DeclaredBackward | None = None
        self._disabled_kernel: set[str] = set()

        keys = ["CompositeExplicitAutograd"]
        if device_types is not None:
            keys = [dispatch_key(device, self.signature) for device in device_types]
        implementation = own.implementation(self)
        tensors = signature.tensors
        if (
            device_types is None
            and tensors
            and all(p.optional or p.is_tensor_list for p in tensors)
        ):
            implementation = self._or_on_the_host(implementation)
        for key in keys:
            self._registration.implement(key, implementation)
        self._registration.fake(late(lambda: _derived_fake(signature)))
        self._registration.vmap(late(lambda: _derived_rule(self)))
        self._registration.autograd(self)
        if autocast.needs_promotion(signature):
            for key in autocast.autocast_keys():
                self._registration.implement(
                    key,
                    late(functools.partial(autocast.promoting_kernel, self, key)),
                    with_keyset=True,
                )
        names = sorted(str(tag) for tag in self.overload.tags)
        how = repr(rule.reference)
        graph_caches.begin(self.name, reference, signature.facts(), how, *names)
        registry.add(self)

    def _or_on_the_host(self, reference: Callable[..., Any]) -> Callable[..., Any]:
        """The reference, but for calls that give no tensor: those are for the host's kernel.

        No device's dispatch key leads such a call to it.
        """

        def run(*args: Any, **kwargs: Any) -> Any:
            from opsmith.operators.core.arguments import every_tensor_in

            if HOST not in self.kernels or not self.is_enabled(HOST):
                return reference(*args, **kwargs)
            if any(True for _ in every_tensor_in(self.arguments(args, kwargs))):
                return reference(*args, **kwargs)
            return self.overload.redispatch(_HOST_KEYS, *args, **kwargs)

        return run

    def __repr__(self) -> str:
        return f"<opsmith operator {self.signature.namespace}::{self.signature.schema()}>"

    def __reduce__(self) -> tuple[Any, ...]:
        return registry.get, (self.name,)

    @refuse_unknown_keywords(lambda self, *_: f"{self.name}: register_kernel")
    def register_kernel(  # type: ignore[override]
        self,
        device_types: str | Sequence[str],
        function: Callable[..., Any] | None = None,
        *,
        source: str | Path | None = None,
        api: str = "opsmith",
        strided: bool | Sequence[str] = False,
        flags: Sequence[str] = (),
        language: str = "",
        triton: Any = None,
        grid: Any = None,
        meta: Mapping[str, Any] | Callable[..., Mapping[str, Any]] | None = None,
        args: Mapping[str, Any] | None = None,
    ) -> Any:
        """Register an implementation for one or more device types.

        Args:
            device_types: ``"cpu"``, ``"cuda"``, …
            function: a Python function that takes the operator's arguments; without it and
                without `source` this is a decorator.
            source: a C++ or CUDA file instead, relative to the file that declares the operator.
                It is built when it is first needed, or by `build`.
            api: what the source is written against: ``"opsmith"`` (``<opsmith/kernel.h>``) or
                ``"torch"`` (its own ``TORCH_LIBRARY`` or ``TORCH_LIBRARY_IMPL`` block).
            strided: whether the kernel reads strides itself; else every tensor arrives
                contiguous. Names of parameters ask for those alone.
            flags: further compiler flags.
            language: of the source, where the file's name does not tell it: ``"ascendc"``.
            triton: a ``@triton.jit`` kernel instead, or ``"module:name"`` of one, which is then
                imported when it is needed. Each of its parameters is given the tensor (or
                ``NAME_ptr``), number or dimension of its name; results are allocated. `True` says
                that `function` launches such kernels by ``torch.library.wrap_triton``, as a
                ``torch.library.triton_op`` does.
            grid: with a kernel, how many programs: up to three ints or expressions (``("N", 4)``),
                or a function that gives them. It takes by name any of the dimensions, arguments,
                results and constants.
            meta: with a kernel, its constexpr parameters, and ``num_warps`` and its kin; or a
                function of dimensions that gives them.
            args: with a kernel, what its other parameters are given, each an int, a float, an
                expression, or a function as `grid` is: ``{"n": lambda x: x.numel()}``.

        Returns:
            The function, or nothing for a source or kernel.

        Raises:
            DeclarationError: no such device type, file or parameter.
        """
        devices = self._device_types(device_types)
        keys = {device: dispatch_key(device, self.signature) for device in devices}
        made: type[PythonKernel] = PythonKernel
        if triton or (grid, meta, args) != (None, None, None):
            from opsmith.operators.dispatch import triton_kernel

            triton_kernel.check_arguments(self.name, triton, grid, meta, args, function, source)
            made = triton_kernel.TritonLauncher
            if triton and triton is not True:
                for device in devices:
                    self._register(
                        triton_kernel.launching(self, device, triton, grid, meta, args, strided)
                    )
                return None
        if source is not None:
            if function is not None:
                raise DeclarationError(f"{self.name}: give a function or source=, not both")
            for device in devices:
                self._register_source(
                    device, keys[device], source, api, strided, tuple(flags), language
                )
            return None
        if function is None:
            return functools.partial(self.register_kernel, device_types, triton=triton)
        if isinstance(function, str | Path):
            raise DeclarationError(
                f"{self.name}: register_kernel: expected a function, got {str(function)!r}; a file "
                f"is given by name: source={str(function)!r}"
            )
        self._require_function("register_kernel", function)
        for device in devices:
            self._register(made(device, function))
        return function

    def _device_types(self, given: str | Sequence[str]) -> list[str]:
        devices = [given] if isinstance(given, str) else given
        if isinstance(devices, Sequence) and all(isinstance(one, str) for one in devices):
            return list(devices)
        hint = "; where none is registered, the reference runs" if given is None else ""
        raise DeclarationError(
            f'{self.name}: register_kernel: expected a device type, as in "cpu", or a sequence of '
            f"these, got {given!r}{hint}"
        )

    def _register(self, kernel: Kernel) -> None:
        self.kernels[kernel.device] = kernel
        self.install_kernel(kernel.device)
        if kernel.dissolves:
            from opsmith.operators.dispatch import triton_kernel

            triton_kernel.see_through(self)

    def _register_source(
        self,
        device: str,
        key: str,
        source: str | Path,
        api: str,
        strided: bool | Sequence[str],
        flags: tuple[str, ...],
        language: str,
    ) -> None:
        path = source_path(source, self.reference, self.name)
        asked = strided if isinstance(strided, bool) else tuple(strided)
        self._register(
            NativeKernel(
                kernel_source(
                    self.signature,
                    device,
                    path,
                    api,
                    asked=language,
                    strided=asked,
                    flags=flags,
                    others=lambda: self._others_in(path, device),
                ),
                lambda: self._registration.guarded_calls(key),
            )
        )

    def _others_in(self, path: Path, device: str) -> list[KernelSource]:
        """Return the sources of the other operators' kernels for a device in the same file."""
        kernels = [op.kernels.get(device) for op in registry.all_operators() if op is not self]
        sources = [kernel.source for kernel in kernels if kernel is not None]
        return [one for one in sources if one is not None and one.path == path]

    def install_kernel(self, device: str) -> None:
        """Make the kernel of a device type the one that calls reach, the reference if disabled."""
        kernel = self.kernels[device if self.is_enabled(device) else "reference"]
        self._registration.implement(
            dispatch_key(device, self.signature), kernel.implementation(self)
        )

    def is_enabled(self, device: str) -> bool:
        """Whether calls reach the kernel of a device type; see `set_kernel_enabled`."""
        return device not in self._disabled_kernel

    @contextmanager
    def set_kernel_enabled(self, device_type: str, enabled: bool = True) -> Iterator[None]:
        """Within a ``with`` block, let the reference run in place of a kernel, or not any more.

        As ``torch.library.custom_op`` has it. A kernel that is registered while its device type is
        disabled waits until the block ends.

        Args:
            device_type: whose kernel.
            enabled: whether calls reach it.

        Raises:
            DeclarationError: no kernel is registered for that device type.

        Example:
            >>> import opsmith
            >>> from jaxtyping import Float
            >>> from torch import Tensor
            >>> @opsmith.op("docs::halve")
            ... def halve(x: Float[Tensor, "*n"]) -> Float[Tensor, "*n"]:
            ...     return x / 2
            >>> @halve.register_kernel("cpu")
            ... def _(x):
            ...     return x * 0.5
            >>> with halve.set_kernel_enabled("cpu", False):
            ...     halve(torch.ones(1)), halve.kernels["cpu"].calls
            (tensor([0.5000]), 0)
        """
        if device_type not in self.kernels or device_type == "reference":
            known = ", ".join(name for name in self.kernels if name != "reference")
            raise DeclarationError(
                f"{self.name}: set_kernel_enabled({device_type!r}): no kernel is registered for "
                f"it; there are {known or 'none'}"
            )
        before = device_type in self._disabled_kernel

        def disable(disabled: bool) -> None:
            if disabled != (device_type in self._disabled_kernel):
                self._disabled_kernel ^= {device_type}
                self.install_kernel(device_type)

        disable(not enabled)
        try:
            yield
        finally:
            disable(before)

    def register_torch_dispatch(
        self,
        torch_dispatch_class: type,
        function: Callable[..., Any] | None = None,
        /,
    ) -> Any:
        """Say what the operator does with a ``__torch_dispatch__`` class; usable as a decorator.

        Args:
            torch_dispatch_class: a tensor subclass or a mode.
            function: as in ``torch.library.register_torch_dispatch``.
        """
        if function is None:
            return functools.partial(self.register_torch_dispatch, torch_dispatch_class)
        self._require_function("register_torch_dispatch", function)
        self._registration.torch_dispatch(torch_dispatch_class, function)
        return function

    def build(self, device: str | None = None) -> list[Path]:
        """Build and load the compiled kernels.

        Operators that share a source with ``api="torch"`` get their kernels at once, since loading
        it registers all of them.

        Args:
            device: only this device type's; by default all, but those for devices that are not
                here whose compilers are not either.

        Returns:
            The libraries' paths.

        Raises:
            BuildError: a source does not compile; the message is the compiler's.
            MissingDependencyError: there is no compiler.
        """
        built = []
        for name, kernel in self.kernels.items():
            if self.is_enabled(name) and device in (None, name):
                try:
                    path = kernel.build(self)
                except MissingDependencyError:
                    if device is not None or not get_device(name, self.name).missing():
                        raise
                    continue
                if path is not None:
                    built.append(path)
        return built

    def register_fake(self, function: Callable[..., Any] | None = None, /) -> Any:
        """Register a fake kernel in place of the derived one; usable as a decorator.

        Args:
            function: takes the operator's arguments as fake tensors, and returns its results.
        """
        if function is None:
            return self.register_fake
        from opsmith.operators.dispatch.fake import checked_fake

        self._require_function("register_fake", function)
        self.written_fake = function
        self._registration.fake(checked_fake(self.signature, function))
        graph_caches.tell(self.name, "fake kernel", function)
        return function

    def register_autograd(
        self,
        backward: Callable[..., Any] | None = None,
        /,
        *,
        setup_context: Callable[..., Any] | None = None,
    ) -> Any:
        """Register a backward formula, in the contract of ``torch.library.register_autograd``.

        Args:
            backward: ``backward(ctx, *grads)`` returns one gradient, or `None`, for each argument
                that is not keyword-only. Usable as a decorator.
            setup_context: ``setup_context(ctx, inputs, output)`` saves what `backward` needs; it
                gets ``keyword_only_inputs`` too if the operator has keyword-only arguments.

        Raises:
            DeclarationError: the operator mutates its arguments.
        """
        if backward is None:
            return functools.partial(self.register_autograd, setup_context=setup_context)
        self._require_function("register_autograd", backward)
        if setup_context is not None:
            self._require_function("register_autograd(setup_context=)", setup_context)
        self._refuse_a_gradient_of_mutation()
        self._differentiate(Rule(backward, setup_context, self.rule.reference), None)
        return backward

    def _refuse_a_gradient_of_mutation(self) -> None:
        if self.signature.mutated:
            raise DeclarationError(
                f"{self.name}: mutates {self.signature.mutated[0].name!r}; a mutating operator has "
                "no gradient. Declare a functional one, and mutate around it."
            )

    def _differentiate(self, rule: Rule, declared: DeclaredBackward | None) -> None:
        self.rule, self.declared_backward = rule, declared
        self._registration.autograd_again(self)
        how = "" if declared is None else repr((declared.given, declared.gradients))
        graph_caches.tell(self.name, "derivatives", rule.backward, rule.setup_context, how)

    def register_backward(
        self,
        backward: Operator,
        /,
        *,
        grads: Mapping[str, int | str],
        saves: Sequence[str] | None = None,
    ) -> None:
        """Register an operator that gives the gradients, in place of a function.

        Its parameters are found by name: those of this one's arguments and ``result`` are saved
        for it, ``grad`` is the result's gradient. Where there are several results they are called
        ``result_NAME`` and ``grad_NAME``.

        Args:
            backward: the operator, of opsmith's.
            grads: which result of `backward`, by position or name, is the gradient of which
                argument; others have none.
            saves: what is saved, if it is to be compared with what `backward` takes.

        Raises:
            DeclarationError: the two do not fit each other, or the operator mutates its arguments.

        Example:
            >>> import opsmith
            >>> from jaxtyping import Float
            >>> from torch import Tensor
            >>> @opsmith.op("docs::square")
            ... def square(x: Float[Tensor, "N"]) -> Float[Tensor, "N"]:
            ...     return x * x
            >>> @opsmith.op("docs::square_backward")
            ... def square_backward(
            ...     grad: Float[Tensor, "N"], x: Float[Tensor, "N"]
            ... ) -> Float[Tensor, "N"]:
            ...     return 2 * x * grad
            >>> square.register_backward(square_backward, grads={"x": 0})
            >>> x = torch.ones(2, requires_grad=True)
            >>> square(x).sum().backward()
            >>> x.grad
            tensor([2., 2.])
        """
        from opsmith.operators.dispatch import declared_backward

        self._refuse_a_gradient_of_mutation()
        declared = declared_backward.declared(self, backward, saves, grads)
        self._differentiate(declared.rule(self.rule), declared)

    def register_vmap(self, function: Callable[..., Any] | None = None, /) -> Any:
        """Register a batching rule in place of the derived one; usable as a decorator.

        Args:
            function: ``function(info, in_dims, *args)`` returns ``(results, out_dims)``, as in
                ``torch.library.register_vmap``.
        """
        if function is None:
            return self.register_vmap
        from opsmith.operators.dispatch.vmap import checked_rule

        self._require_function("register_vmap", function)
        self._registration.vmap(checked_rule(self.signature, function))
        graph_caches.tell(self.name, "batching rule", function)
        return function

    def register_autocast(self, device_type: str, cast_inputs: torch.dtype) -> None:
        """Cast every floating tensor to `cast_inputs` under autocast on `device_type`.

        Raises:
            DeclarationError: there is no autocast for that device type.
        """
        device = find_device(device_type)
        key = None if device is None else device.autocast_key
        if key is None:
            there = [name for name, row in DEVICES.items() if row.autocast_key is not None]
            raise DeclarationError(
                f"{self.name}: register_autocast({device_type!r}): there are {', '.join(there)}"
            )
        if not isinstance(cast_inputs, torch.dtype):
            raise DeclarationError(
                f"{self.name}: register_autocast: expected a dtype, as in torch.float16, got "
                f"{cast_inputs!r}"
            )
        kernel = autocast.casting_kernel(self, key, cast_inputs)
        self._registration.implement(key, kernel, with_keyset=True)
        graph_caches.tell(self.name, f"autocast, {device_type}", str(cast_inputs))


def _derived_fake(signature: Signature) -> Callable[..., Any]:
    from opsmith.operators.dispatch.fake import fake_kernel

    return fake_kernel(signature)


def _derived_rule(operator: Operator) -> Callable[..., Any]:
    from opsmith.operators.dispatch.vmap import batching_rule

    return batching_rule(operator)
