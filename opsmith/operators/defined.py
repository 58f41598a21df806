"""An operator declared with opsmith, and the registration of its kernels, derivatives and rules."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, overload

import torch

from opsmith.errors import DeclarationError, MissingDependencyError
from opsmith.kernels import get_device
from opsmith.operators.core import registry
from opsmith.operators.core.lazy import late
from opsmith.operators.core.operator import F, Kernel, Operator, P, R, RegisteredOperator
from opsmith.operators.core.rule import Rule, require_gradient_arguments
from opsmith.operators.core.source_location import where_written
from opsmith.operators.dispatch import autocast, graph_caches
from opsmith.operators.dispatch.kernel import (
    PythonKernel,
    device_types_of,
    dispatch_key,
    host_kernel_without_tensors,
)
from opsmith.operators.dispatch.ranks import sharding
from opsmith.operators.dispatch.registration import Registration, derived_fake, derived_rule
from opsmith.operators.dispatch.variants import kernels_of
from opsmith.signature import Signature
from opsmith.signature.suggestions import refuse_unknown_keywords
from opsmith.untyped import Arguments, Value

if TYPE_CHECKING:
    from opsmith.operators.dispatch.declared_backward import DeclaredBackward


class DefinedOperator(RegisteredOperator[P, R]):
    """An operator declared by `opsmith.op`, which accepts kernels, derivatives and rules."""

    def __init__(
        self,
        signature: Signature,
        reference: Callable[P, R],
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
        may_have_none = all(p.optional or p.is_tensor_list for p in tensors)
        if device_types is None and tensors and may_have_none:
            implementation = host_kernel_without_tensors(self, implementation)
        for key in keys:
            self._registration.implement(key, implementation)
        self._registration.fake(late(lambda: derived_fake(signature)))
        self._registration.vmap(late(lambda: derived_rule(self)))
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
        if (earlier := registry.find(self.name)) is not None:
            earlier.forward_to(self)
        registry.add(self)
        sharding.register(self)

    def __repr__(self) -> str:
        return f"<opsmith operator {self.signature.namespace}::{self.signature.schema()}>"

    def __reduce__(self) -> tuple[object, ...]:
        return registry.get, (self.name,)

    @overload  # type: ignore[override]
    def register_kernel(
        self, device_types: str | Sequence[str], function: F, *, triton: Literal[True] | None = ...
    ) -> F:
        """Register a function; with ``triton=True`` it launches Triton kernels."""

    @overload
    def register_kernel(
        self, device_types: str | Sequence[str], *, triton: Literal[True] | None = ...
    ) -> Callable[[F], F]:
        """Register the decorated function; with ``triton=True`` it launches Triton kernels."""

    @overload
    def register_kernel(
        self,
        device_types: str | Sequence[str],
        *,
        source: str | Path,
        api: str = ...,
        strided: bool | Sequence[str] = ...,
        flags: Sequence[str] = ...,
        variants: Mapping[str, Sequence[int | str]] | None = ...,
        language: str = ...,
    ) -> None:
        """Register a C++, CUDA or Ascend C file, which is built when it is first needed."""

    @overload
    def register_kernel(
        self,
        device_types: str | Sequence[str],
        *,
        triton: object,
        grid: object,
        meta: Arguments | Callable[..., Arguments] | None = ...,
        args: Arguments | None = ...,
        strided: bool | Sequence[str] = ...,
    ) -> None:
        """Register a ``@triton.jit`` kernel, or its location, which is launched on `grid`."""

    @overload
    def register_kernel(
        self,
        device_types: str | Sequence[str],
        *,
        tvm_ffi: object,
        function: str | None = ...,
        args: Sequence[str] | None = ...,
        strided: bool | Sequence[str] = ...,
    ) -> None:
        """Register a function of a tvm-ffi module, which was compiled elsewhere."""

    @refuse_unknown_keywords(lambda self, *_: f"{self.name}: register_kernel")
    def register_kernel(
        self,
        device_types: str | Sequence[str],
        function: Callable[..., object] | str | None = None,
        *,
        source: str | Path | None = None,
        api: str = "opsmith",
        strided: bool | Sequence[str] = False,
        flags: Sequence[str] = (),
        variants: Mapping[str, Sequence[int | str]] | None = None,
        language: str = "",
        triton: object = None,
        grid: object = None,
        meta: Arguments | Callable[..., Arguments] | None = None,
        args: Value = None,
        tvm_ffi: object = None,
    ) -> object:
        """Register an implementation for one or more device types.

        Args:
            device_types: ``"cpu"``, ``"cuda"``, …
            function: a Python function that takes the operator's arguments; without it and
                without `source` the method is a decorator.
            source: a C++ or CUDA file instead, relative to the file that declares the operator.
                It is built when it is first needed, or by `build`.
            api: the interface that the source uses: ``"opsmith"`` (``<opsmith/kernel.h>``) or
                ``"torch"`` (its own ``TORCH_LIBRARY`` or ``TORCH_LIBRARY_IMPL`` block).
            strided: whether the kernel reads strides itself, or the names of the tensor parameters
                whose strides it reads. Other tensors are passed contiguous.
            flags: further compiler flags.
            variants: the values that macros of the source may have, ``{"TILE": (64, 128)}``: the
                first ones for calls; all are checked and timed. See `variant`, `opsmith.autotune`.
            language: language of the source, if the file's name does not show it: ``"ascendc"``.
            triton: a ``@triton.jit`` kernel instead, or its location ``"module:name"``, which is
                imported when the kernel is needed. Each of the kernel's parameters receives the
                tensor (also as ``NAME_ptr``), number or dimension of its name; results are
                allocated before. `True` means that `function` launches such kernels by
                ``torch.library.wrap_triton``, as a ``torch.library.triton_op`` does.
            grid: with a Triton kernel, the number of programs: up to three ints or expressions
                (``("N", 4)``), or a function that returns them. The function takes, by name, any of
                the dimensions, arguments, results and constants.
            meta: with a Triton kernel, its constexpr parameters, ``num_warps`` and similar options;
                or a function of dimensions that returns them.
            args: with a Triton kernel, the values of its other parameters, each an int, a float, an
                expression, or a function like that of `grid`: ``{"n": lambda x: x.numel()}``. With
                `tvm_ffi`, names of what the function takes, in order; it returns the other results.
            tvm_ffi: a module of tvm-ffi instead, loaded, or the path of its library; `function` is
                then the name of its function, by default the operator's.

        Returns:
            The function; `None` for a source, a Triton kernel or a module.

        Raises:
            DeclarationError: the device type, file or parameter does not exist.
        """
        devices = device_types_of(self.signature, device_types)
        if variants is not None and source is None:
            raise DeclarationError(f"{self.name}: register_kernel(variants=…) needs source=")
        if tvm_ffi is not None:
            if callable(function) or any((source, triton, grid, meta, flags, language)):
                taken = "function=, the name of its function, args= and strided="
                raise DeclarationError(f"{self.name}: register_kernel(tvm_ffi=…) takes {taken}")
            options = {"function": function or self.signature.name, "args": args, "api": "tvm_ffi"}
            self._register_compiled(devices, tvm_ffi, {**options, "strided": strided})
            return None
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
            options = {"flags": flags, "asked": language, "api": api, "strided": strided}
            self._register_compiled(devices, source, options, variants)
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

    def _register_compiled(
        self, devices: Sequence[str], source: object, options: Value, variants: Value = None
    ) -> None:
        for device in devices:
            kernel, further = kernels_of(self, device, source, options, variants)
            self._register(kernel)
            self.variants |= further

    def _register(self, kernel: Kernel) -> None:
        registry.require_latest(self)
        self.kernels[kernel.device] = kernel
        self.variants = {n: one for n, one in self.variants.items() if one.device != kernel.device}
        self.install_kernel(kernel.device)
        if kernel.dissolves:
            from opsmith.operators.dispatch import triton_kernel

            triton_kernel.see_through(self)

    def install_kernel(self, device: str) -> None:
        """Make calls on a device type reach its kernel, or the reference if it is disabled."""
        kernel = self.kernels[device if self.is_enabled(device) else "reference"]
        self._registration.implement(
            dispatch_key(device, self.signature), kernel.implementation(self)
        )

    def is_enabled(self, device: str) -> bool:
        """Return whether calls reach the kernel of a device type; see `set_kernel_enabled`."""
        return device not in self._disabled_kernel

    @contextmanager
    def set_kernel_enabled(self, device_type: str, enabled: bool = True) -> Iterator[None]:
        """Disable or enable a device type's kernel in a ``with`` block; the reference replaces it.

        It works like the method of ``torch.library.custom_op``. A kernel that is registered while
        its device type is disabled takes effect when the block ends.

        Args:
            device_type: the kernel's device type.
            enabled: whether calls reach the kernel.

        Raises:
            DeclarationError: no kernel is registered for the device type.

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
            known = ", ".join(name for name in self.kernels if name != "reference") or "none"
            what = f"{self.name}: set_kernel_enabled({device_type!r})"
            raise DeclarationError(f"{what}: no kernel is registered for it; there are {known}")
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
        self, torch_dispatch_class: type, function: Callable[..., object] | None = None, /
    ) -> Any:  # the function, or without one a decorator
        """Register the implementation for a ``__torch_dispatch__`` class; usable as a decorator.

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

        Args:
            device: the device type to build for. By default build for all device types, except
                those whose device and compiler are both missing.

        Returns:
            The libraries' paths.

        Raises:
            BuildError: a source does not compile; the message is the compiler's.
            MissingDependencyError: no compiler is installed.
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

    def register_fake(self, function: F | None = None, /) -> F:
        """Register a fake kernel in place of the derived one; usable as a decorator.

        Args:
            function: takes the operator's arguments as fake tensors, and returns its results.
        """
        if function is None:
            return self.register_fake  # type: ignore[return-value]
        from opsmith.operators.dispatch.fake import checked_fake, noticing_no_write

        self._require_function("register_fake", function)
        self.written_fake = function
        checked = checked_fake(self.signature, function)
        self._registration.fake(noticing_no_write(self.signature, checked))
        graph_caches.tell(self.name, "fake kernel", function)
        return function

    @overload  # type: ignore[override]
    def register_autograd(
        self, backward: F, /, *, setup_context: Callable[..., object] | None = ...
    ) -> F:
        """Register a backward."""

    @overload
    def register_autograd(
        self, /, *, setup_context: Callable[..., object] | None = ...
    ) -> Callable[[F], F]:
        """Register the decorated backward."""

    def register_autograd(
        self,
        backward: Callable[..., object] | None = None,
        /,
        *,
        setup_context: Callable[..., object] | None = None,
    ) -> object:
        """Register a backward formula, with the interface of ``torch.library.register_autograd``.

        Args:
            backward: ``backward(ctx, *grads)`` returns one gradient, or `None`, for each argument
                that is not keyword-only. Usable as a decorator.
            setup_context: ``setup_context(ctx, inputs, output)`` saves the values that `backward`
                needs; it receives ``keyword_only_inputs`` too if the operator has keyword-only
                arguments. If the operator writes into arguments, `backward` also receives the
                gradient of each one's new contents, after those of the results, and `inputs` has
                the new contents.

        Raises:
            DeclarationError: the operator has another number of results.
        """
        if backward is None:
            return functools.partial(self.register_autograd, setup_context=setup_context)
        self._require_function("register_autograd", backward)
        if setup_context is not None:
            self._require_function("register_autograd(setup_context=)", setup_context)
        require_gradient_arguments(self.signature, backward)
        self._differentiate(Rule(backward, setup_context, self.rule.reference), None)
        return backward

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
        """Register an operator that computes the gradients, in place of a function.

        Its parameters are matched by name. Parameters named like an argument of this operator, and
        ``result``, receive saved values; ``grad`` receives the result's gradient. If this operator
        has several results, or an argument called ``grad``, the names are ``result_NAME`` and
        ``grad_NAME`` (``grad_out`` for a single result). If it writes into an argument, the
        argument's name stands for its new contents, and ``grad_NAME`` for their gradient.

        Args:
            backward: the operator that computes the gradients, declared with opsmith.
            grads: for each argument that has a gradient, the position or name of the result of
                `backward` that is the gradient.
            saves: the names of the saved values; if given, they are compared with the parameters of
                `backward`.

        Raises:
            DeclarationError: the operators do not match.

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

        declared = declared_backward.declared(self, backward, saves, grads)
        self._differentiate(declared.rule(self.rule), declared)

    def register_vmap(self, function: F | None = None, /) -> F:
        """Register a batching rule in place of the derived one; usable as a decorator.

        Args:
            function: ``function(info, in_dims, *args)`` returns ``(results, out_dims)``, as in
                ``torch.library.register_vmap``.
        """
        if function is None:
            return self.register_vmap  # type: ignore[return-value]
        from opsmith.operators.dispatch.vmap import checked_rule

        self._require_function("register_vmap", function)
        self._registration.vmap(checked_rule(self.signature, function))
        graph_caches.tell(self.name, "batching rule", function)
        return function

    def register_autocast(self, device_type: str, cast_inputs: autocast.Casts) -> None:
        """Cast every floating tensor to `cast_inputs` under autocast on `device_type`.

        Args:
            device_type: ``"cpu"``, ``"cuda"``, …
            cast_inputs: the dtype for every floating tensor that may have it; or the dtypes for the
                tensors of some dtype variables, by name: ``{"Float": torch.float16}``.

        Raises:
            DeclarationError: the device type does not support autocast, or a dtype variable does
                not exist, or cannot be that dtype.
        """
        key = autocast.casting_key(self.signature, device_type, cast_inputs)
        kernel = autocast.casting_kernel(self, key, cast_inputs)
        self._registration.implement(key, kernel, with_keyset=True)
        graph_caches.tell(self.name, f"autocast, {device_type}", str(cast_inputs))
