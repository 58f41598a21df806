"""Keep track of an operator's registrations with PyTorch, so that they can be undone."""

from __future__ import annotations

import functools
import inspect
import os
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import torch
from torch.library import Library

from opsmith import kernels
from opsmith.compat.torch_autograd import in_transform
from opsmith.compat.torch_dispatch import is_defined, parse_schema
from opsmith.compat.torch_inductor import plan_results
from opsmith.compat.torch_library import destroy, let_an_argument_be_called_mode
from opsmith.compat.torch_ops import OpOverload, overload_schema
from opsmith.errors import ArgumentError, DeclarationError
from opsmith.operators.core import registry
from opsmith.operators.core.arguments import every_tensor_in, map_tensors
from opsmith.operators.core.lazy import late
from opsmith.operators.core.source_location import where_written
from opsmith.operators.core.unusable import unusable
from opsmith.operators.dispatch import autograd
from opsmith.signature import Signature
from opsmith.untyped import Value

if TYPE_CHECKING:
    from opsmith.operators.core.operator import Operator, RegisteredOperator
    from opsmith.operators.dispatch.gates.argument_gate import ArgumentGate
    from opsmith.operators.dispatch.gates.autograd_gate import Gate
    from opsmith.operators.dispatch.kernel import NativeKernel


_CURRENT: dict[str, Registration] = {}
#: The dispatch keys of tensors that are conjugated or negated only when they are read.
LAZY_KEYS = ("Conjugate", "Negative")
#: The tag by which out variants are found is not in every release.
_OUT_TAGS = [getattr(torch.Tag, t) for t in ("pt2_compliant_tag", "out") if hasattr(torch.Tag, t)]


class Registration:
    """The registrations of one operator: its schema and one kernel per dispatch key.

    Every kernel has a `Library` object of its own, because PyTorch undoes registrations by library.

    Args:
        tags: further tags of PyTorch's for the operator.
        where: file and line of the declaration, for messages.

    Attributes:
        overload: the ``OpOverload`` that calls use.
    """

    def __init__(self, signature: Signature, tags: Sequence[torch.Tag], where: str = "") -> None:
        self.signature = signature
        earlier = _CURRENT.pop(signature.qualname, None)
        if earlier is not None:
            earlier.withdraw()
        # The library of a source that registers itself may have been loaded for another operator in
        # it.
        kernels.forget_definition(signature.qualname)
        if is_defined(signature.qualname):
            raise DeclarationError(
                f"{signature.qualname}: PyTorch already has an operator of this name, "
                f"{_definer(signature.qualname)}. Give yours"
                f"{f', declared in {where},' if where else ''} another name."
            )
        if signature.mutated and "mode" in signature.by_name:
            let_an_argument_be_called_mode()
        self._libraries: dict[str, Library] = {}
        self._native: dict[str, kernels.Library] = {}
        self._gate: Gate | None = None
        self._out_gate: Gate | None = None
        self._argument_gate: ArgumentGate | None = None
        definition = Library(signature.namespace, "FRAGMENT")
        definition.define(signature.schema(), tags=_tags(signature, tags))
        self._libraries["define"] = definition
        if not signature.no_out:
            definition.define(signature.out_schema(), tags=_OUT_TAGS)
        packet = getattr(getattr(torch.ops, signature.namespace), signature.name)
        self.overload: OpOverload = packet.default
        self._copying = late(functools.partial(_copying, signature, self.overload))
        if not signature.no_out:
            definition.impl(f"{signature.name}.out", self._copying, "CompositeImplicitAutograd")
        _CURRENT[signature.qualname] = self

    def implement(
        self, key: str, function: Callable[..., object], *, with_keyset: bool = False
    ) -> None:
        """Make `function` the kernel at `key`, in place of an earlier one."""
        self.withdraw_kernel(key)
        library = Library(self.signature.namespace, "FRAGMENT")
        library.impl(self.signature.name, function, key, with_keyset=with_keyset)
        self._libraries[key] = library

    def native(self, key: str, kernel: NativeKernel) -> kernels.Library:
        """Load a compiled kernel that has been built, and make it the kernel at `key`.

        Raises:
            BuildError: the library does not load.
            DeclarationError: the source defines the operator with another schema.
        """
        library = kernel.source.load()
        self._compare_schemas(library.schema())
        library.register()
        self._native[key] = library
        if kernel.validates and not self.signature.no_out:
            self._gate_out_variant()
        if not kernel.validates:
            self._guard_arguments(key, kernel.source)
        return library

    def variant(self, name: str, kernel: NativeKernel) -> OpOverload:
        """Return the operator, of this name, that a compiled variant of a kernel serves."""
        namespace, place = self.signature.namespace, f"variant {name}"
        if kernel.library is None or self._native.get(place) is not kernel.library:
            kernel.source.build()
            self.withdraw_kernel(place)
            # No overload: PyTorch mistakes those with equal arguments when it forgets an operator.
            definition = self._libraries[place] = Library(namespace, "FRAGMENT")
            schema = self.signature.schema().removeprefix(self.signature.name)
            definition.define(f"{name}{schema}", tags=self.overload.tags)
            fake = functools.partial(self.overload)
            torch.library.register_fake(f"{namespace}::{name}", fake, lib=definition)
            kernel.library = self._native[place] = kernel.source.load()
            kernel.library.register_as(name)
        return getattr(getattr(torch.ops, namespace), name).default  # type: ignore[no-any-return]

    def _guard_arguments(self, key: str, source: kernels.KernelSource) -> None:
        from opsmith.operators.dispatch.gates import argument_gate

        before = {}
        if self._argument_gate is not None:
            before = self._argument_gate.kernels
            self._argument_gate.close()
        self._argument_gate = argument_gate.ArgumentGate(self.signature, {**before, key: source})

    def guarded_calls(self, key: str) -> int:
        """Return how often a kernel was called that does not count its calls itself."""
        guarded = self._argument_gate
        return 0 if guarded is None or key not in guarded.kernels else guarded.calls(key)

    def _compare_schemas(self, schema: str | None) -> None:
        if schema is None:
            return
        theirs, ours = parse_schema(schema), overload_schema(self.overload)
        if [(a.name, str(a.type)) for a in theirs.arguments] != [
            (a.name, str(a.type)) for a in ours.arguments
        ] or [str(r.type) for r in theirs.returns] != [str(r.type) for r in ours.returns]:
            raise DeclarationError(
                f"{self.signature.qualname}: the schema in the C++ source differs from the "
                f"declaration's.\n  C++:         {theirs}\n  declaration: {ours}"
            )

    def fake(self, function: Callable[..., object]) -> None:
        """Make `function` the fake kernel."""
        self.withdraw_kernel("fake")
        # torch looks up the calling module; without this entry, inspect searches all loaded
        # modules.
        inspect.modulesbyfile.setdefault(os.path.abspath(__file__), __name__)
        library = Library(self.signature.namespace, "FRAGMENT")
        torch.library.register_fake(
            self.signature.qualname, function, lib=library, allow_override=True
        )
        self._libraries["fake"] = library

    def vmap(self, function: Callable[..., object]) -> None:
        """Make `function` the batching rule."""
        self.withdraw_kernel("vmap")
        library = _BatchingLibrary(self.signature)
        torch.library.register_vmap(self.signature.qualname, function, lib=library)
        self._libraries["vmap"] = library

    def torch_dispatch(self, kind: type, function: Callable[..., object]) -> None:
        """Make `function` the implementation for a ``__torch_dispatch__`` class."""
        key = _dispatch_of(kind)
        self.withdraw_kernel(key)
        library = Library(self.signature.namespace, "FRAGMENT")
        torch.library.register_torch_dispatch(self.signature.qualname, kind, function, lib=library)
        self._libraries[key] = library

    def dispatches(self, kind: type) -> bool:
        """Return whether a ``__torch_dispatch__`` class has an implementation."""
        return _dispatch_of(kind) in self._libraries

    def withdraw_torch_dispatch(self, kind: type) -> None:
        """Undo the implementation for a ``__torch_dispatch__`` class."""
        self.withdraw_kernel(_dispatch_of(kind))

    def autograd(self, operator: Operator) -> None:
        """Register the kernels for derivatives and for version counters of written tensors."""
        # The dispatcher keeps a registration for as long as the process lives; it must not keep
        # alive an operator that a notebook declares again.
        self.implement("Autograd", autograd.kernel(operator), with_keyset=True)
        if self.signature.mutated:
            self.implement(
                "ADInplaceOrView", autograd.increment_versions(operator), with_keyset=True
            )
            for key in LAZY_KEYS:
                self.implement(key, late(functools.partial(_resolving_kernel, operator)))

    def native_autograd(self, operator: RegisteredOperator) -> None:
        """Let calls pass the autograd keys without entering Python.

        This covers calls that need no derivative, and calls whose declared backward can be recorded
        in C++.
        """
        from opsmith.operators.dispatch.gates import autograd_gate

        if self._gate is not None:
            return
        declared = operator.declared_backward
        recorder = autograd_gate.load_recorder() if autograd_gate.is_recorded(operator) else None
        opened = autograd_gate.load() if recorder is None else recorder
        if opened is None:
            return
        for key in ("Autograd", "ADInplaceOrView"):
            self.withdraw_kernel(key)
        derivative = autograd.derivative_kernel(operator)
        self._gate = autograd_gate.Gate(
            opened, self.signature, derivative, declared if recorder else None
        )

    def _gate_out_variant(self) -> None:
        """Let calls of the out variant that need no derivative reach a compiled kernel in C++."""
        from opsmith.operators.dispatch.gates import autograd_gate

        opened, copying = autograd_gate.load(), self._copying
        if opened is not None and self._out_gate is None:
            self._out_gate = autograd_gate.Gate(
                opened, self.signature, lambda _, *args, **kw: copying(*args, **kw), out=True
            )
        elif opened is None and "out" not in self._libraries:
            self._libraries["out"] = Library(self.signature.namespace, "FRAGMENT")
            self._libraries["out"].impl(f"{self.signature.name}.out", copying, "Autograd")

    def autograd_again(self, operator: RegisteredOperator) -> None:
        """Register the autograd kernels again after the backward changed."""
        if self._gate is not None:
            self._gate.close()
            self._gate = None
            self.autograd(operator)
            self.native_autograd(operator)

    def withdraw(self) -> None:
        """Undo all registrations."""
        for key in [*self._libraries, *self._native]:
            if key != "define":
                self.withdraw_kernel(key)
        for gate in (self._gate, self._out_gate, self._argument_gate):
            if gate is not None:
                gate.close()
        self._gate = self._out_gate = self._argument_gate = None
        self.withdraw_kernel("define")

    def implements(self, key: str) -> bool:
        """Return whether a kernel is registered at `key`."""
        return key in self._libraries or key in self._native

    def withdraw_kernel(self, key: str) -> None:
        """Undo the registration of the kernel at `key`, or of another part of this name."""
        library = self._libraries.pop(key, None)
        if library is not None:
            destroy(library)
        native = self._native.pop(key, None)
        if native is not None:
            native.unregister()
        guarded = self._argument_gate
        if guarded is not None and key in guarded.kernels:
            from opsmith.operators.dispatch.gates import argument_gate

            guarded.close()
            rest = {other: source for other, source in guarded.kernels.items() if other != key}
            again = argument_gate.ArgumentGate(self.signature, rest) if rest else None
            self._argument_gate = again


def _copying(signature: Signature, overload: OpOverload) -> Callable[..., object]:
    from opsmith.operators.dispatch.copying import copying_kernel

    return copying_kernel(signature, overload)


plan_results(lambda name: name in _CURRENT and not _CURRENT[name].signature.no_out)


def _dispatch_of(kind: type) -> str:
    return f"torch_dispatch {kind.__module__}.{kind.__qualname__}"


def _definer(qualname: str) -> str:
    """Describe, if possible, the library that defined an operator missing in our registry."""
    for name, module in list(sys.modules.items()):
        # An installed package may contain a copy of opsmith.
        if name.endswith("opsmith.operators.core.registry") and module is not registry:
            other = module.find(qualname)
            if other is not None:
                return f"declared in {where_written(other.reference) or other.reference.__module__}"
    return "which opsmith did not define"


def _tags(signature: Signature, further: Sequence[torch.Tag]) -> tuple[torch.Tag, ...]:
    tags = {torch.Tag.pt2_compliant_tag, *further}
    strides = {
        torch.Tag.needs_exact_strides,
        torch.Tag.needs_contiguous_strides,
        torch.Tag.needs_fixed_stride_order,
        torch.Tag.flexible_layout,
    }
    if not tags & strides:
        # Kernels require contiguous tensors; the tag lets the compiler produce them directly. A
        # tensor that an operator writes into must not be replaced by a copy.
        tags.add(
            torch.Tag.needs_exact_strides
            if signature.mutated
            else torch.Tag.needs_contiguous_strides
        )
    if signature.data_dependent:
        tags.add(torch.Tag.dynamic_output_shape)
    return tuple(tags)


class _BatchingLibrary(Library):
    """A library whose batching rule refuses, by name, a tensor that was kept from an ended vmap.

    The rule that ``torch.library.register_vmap`` makes asserts that a transform runs.
    """

    def __init__(self, signature: Signature) -> None:
        super().__init__(signature.namespace, "FRAGMENT")
        self._signature = signature

    def impl(self, op_name: object, fn: Value, *args: object, **kwargs: object) -> object:
        """Register the kernel that calls the rule, with a check before it."""
        signature = self._signature

        @functools.wraps(fn)
        def kernel(keyset: object, *args: object, **kwargs: object) -> object:
            if not in_transform():
                from opsmith.signature.calls import named  # few calls come here

                for name, tensor in every_tensor_in(named(signature)(args, kwargs)):
                    problem = unusable(tensor)
                    if problem is not None:
                        raise ArgumentError(f"{signature.qualname}: argument {name!r} {problem}")
            return fn(keyset, *args, **kwargs)

        return super().impl(op_name, kernel, *args, **kwargs)


def _resolving_kernel(operator: Operator) -> Callable[..., object]:
    """Return the kernel of a mutating operator at `LAZY_KEYS`.

    PyTorch's own kernel there copies what was written from the operator's first result. If the
    operator has no result, it reads past the end of the results.
    """
    from opsmith.operators.core.overlap import keep_apart
    from opsmith.operators.core.validation import Validator

    overload, signature = operator.overload, operator.signature
    names = [parameter.name for parameter in signature.mutated]
    validate, apart = Validator(signature), keep_apart(signature)
    arguments_of, split = operator.arguments, operator.split

    def kernel(*args: object, **kwargs: object) -> object:
        arguments = arguments_of(args, kwargs)
        # The copies would hide from the operator's kernel that written tensors share memory.
        validate(arguments)
        kept = apart(arguments)
        resolved = {name: map_tensors(value, _resolved) for name, value in kept.items()}
        positional, keywords = split(resolved)
        returned = overload(*positional, **keywords)
        for name in names:
            _copy_back(arguments[name], resolved[name])
        return returned

    return kernel


def _resolved(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.resolve_conj().resolve_neg()


def _copy_back(into: Value, written: Value) -> None:
    if isinstance(into, list | tuple):
        for one, other in zip(into, written, strict=True):
            _copy_back(one, other)
    elif into is not written and into is not None:
        into.copy_(written)


def derived_fake(signature: Signature) -> Callable[..., object]:
    """Return the fake kernel that the declaration implies."""
    from opsmith.operators.dispatch.fake import fake_kernel, noticing_no_write

    return noticing_no_write(signature, fake_kernel(signature))


def derived_rule(operator: Operator) -> Callable[..., Value]:
    """Return the batching rule that the declaration implies."""
    from opsmith.operators.dispatch.vmap import batching_rule

    return batching_rule(operator)
