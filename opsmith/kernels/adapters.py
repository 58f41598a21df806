"""The C++ between a runtime and a kernel: one anatomy, to which a runtime adds its own words.

Everything that a target needs to know of how kernels are called is here::

    adapters.source(template, signature, "cpu", ...)    # -> str: the adapter's C++
    adapters.kernel_files(signature)                    # -> {"<op>.h": ..., "<op>_check.h": ...}
    adapters.build(kernel, "jax", adapter, ...)         # -> Path: the kernel and its adapter

The template extends ``anatomy.cpp.j2``, which has the steps of a call: take the arguments, validate
them, allocate the results, run the kernel, let its error out. Its blocks say how this runtime's
arguments arrive and where its results go; the C++ types that it names are described in
``include/opsmith/detail/adapter.h``. Nothing in a target's template depends on an argument's kind:
``Argument<Raw>`` is chosen by the argument's type in the operator's ``_raw`` struct.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from opsmith.kernels.build.devices import dispatch_key
from opsmith.kernels.build.units import Generated
from opsmith.kernels.codegen import cpp_names
from opsmith.kernels.codegen.argument_struct import is_dependent, members_of
from opsmith.kernels.codegen.cache_key import generated_key
from opsmith.kernels.codegen.cpp_names import identifier, quote
from opsmith.kernels.codegen.render import TEMPLATES, kernel_files, render
from opsmith.kernels.codegen.symbols import entry_symbol, register_symbol, unregister_symbol
from opsmith.kernels.codegen.validation import ValidationCode
from opsmith.kernels.source import KernelSource
from opsmith.signature.expressions import Expression
from opsmith.signature.model import Signature
from opsmith.signature.parameters import Parameter

__all__ = [
    "Argument",
    "Result",
    "arguments_of",
    "build",
    "identifier",
    "kernel_files",
    "quote",
    "render",
    "results_of",
    "size_text",
    "source",
    "torch_adapter",
]


@dataclass(frozen=True)
class Argument:
    """One argument of a call, as every adapter takes it.

    Attributes:
        parameter: what it is declared as.
        position: among the operator's parameters.
        type: the C++ type that chooses ``Argument<type>``: that of its member in the ``_raw``
            struct, or ``DLTensor*`` for a tensor that the operator writes into.
        copied: whether the kernel wants it contiguous, and the runtime may have it otherwise.
    """

    parameter: Parameter
    position: int
    type: str
    copied: bool

    @property
    def name(self) -> str:
        """In the declaration."""
        return self.parameter.name

    @property
    def member(self) -> str:
        """Its member in the ``_raw`` struct."""
        return identifier(self.name)

    @property
    def local(self) -> str:
        """The adapter's variable."""
        return f"arg_{self.name}"

    @property
    def optional(self) -> bool:
        """Whether it may be ``None``."""
        return self.parameter.optional

    @property
    def written(self) -> bool:
        """Whether the operator writes into it."""
        return self.parameter.mutated


@dataclass(frozen=True)
class Result:
    """One result of a call, as every adapter gives it.

    Attributes:
        name: in the declaration.
        position: among the results.
        dtype: its ``DLDataType`` as a C++ expression.
        dependent: whether the kernel allocates it, as its sizes depend on data.
    """

    name: str
    position: int
    dtype: str
    dependent: bool

    @property
    def member(self) -> str:
        """Its member in the ``_raw`` struct, where it has one."""
        return identifier(self.name)

    @property
    def local(self) -> str:
        """The adapter's variable."""
        return f"result_{self.name}"


def arguments_of(
    signature: Signature, strided: bool | tuple[str, ...] = True
) -> tuple[Argument, ...]:
    """The operator's arguments.

    Args:
        signature: the operator's.
        strided: the tensors that the kernel takes as the runtime has them: all, none, or the
            parameters named. All, for a runtime whose tensors are always contiguous.
    """
    found = []
    for position, (parameter, member) in enumerate(
        zip(signature.parameters, members_of(signature), strict=False)
    ):
        type_ = "opsmith::DLTensor*" if parameter.mutated else member.raw_type
        as_is = strided is True or (strided is not False and parameter.name in strided)
        tensors = parameter.is_tensor or parameter.is_tensor_list
        found.append(Argument(parameter, position, type_, tensors and not as_is))
    return tuple(found)


def results_of(signature: Signature) -> tuple[Result, ...]:
    """The operator's results."""
    found = []
    for position, result in enumerate(signature.results):
        dtypes = result.tensor_type.dtypes
        dtype = "raw.opsmith_dtype" if dtypes.generic else cpp_names.dtype(dtypes.names[0])
        found.append(Result(result.name, position, dtype, is_dependent(signature, result)))
    return tuple(found)


def shared_by(arguments: Sequence[Argument]) -> list[tuple[Argument, Argument]]:
    """Each tensor argument with every other that is written: they may share memory.

    Two that are written come once.
    """
    tensors = [a for a in arguments if a.parameter.is_tensor or a.parameter.is_tensor_list]
    return [
        (one, other)
        for one in tensors
        for other in tensors
        if other.written and one is not other
        if not one.written or other.position < one.position
    ]


def source(
    template: Path,
    signature: Signature,
    device: str,
    *,
    strided: bool | tuple[str, ...] = True,
    **more: Any,
) -> str:
    """The C++ source of an adapter.

    Args:
        template: extends ``anatomy.cpp.j2``.
        signature: the operator's.
        device: the kernel's device type.
        strided: see `arguments_of`.
        more: further names for the template, beside those of `render` and ``arguments``,
            ``shared`` (see `shared_by`), ``results``, ``dependent`` (the results that the kernel
            allocates), ``device``, ``entry`` (the kernel's symbol) and ``values`` (whether values
            have to be scanned).
    """
    results = results_of(signature)
    arguments = arguments_of(signature, strided)
    return render(
        template,
        signature,
        device=device,
        entry=entry_symbol(signature, device),
        arguments=arguments,
        shared=shared_by(arguments),
        results=results,
        dependent=[result for result in results if result.dependent],
        values=bool(ValidationCode(signature).values()),
        **more,
    )


def torch_adapter(
    signature: Signature,
    device: str,
    strided: bool | tuple[str, ...],
    emulated_on: str = "",
) -> str:
    """The source that registers a kernel with PyTorch.

    Args:
        signature: the operator's.
        device: ``"cpu"``, ``"cuda"`` or ``"privateuse1"``.
        strided: see `arguments_of`.
        emulated_on: the device whose tensors it takes instead, where the kernel is emulated.
    """
    return source(
        TEMPLATES / "torch_adapter.cpp.j2",
        signature,
        device,
        strided=strided,
        key=dispatch_key(emulated_on or device, signature, signature.qualname),
        emulated=bool(emulated_on),
        register=register_symbol(signature, device),
        unregister=unregister_symbol(signature, device),
    )


def build(
    kernel: KernelSource,
    runtime: str,
    adapter: Callable[[KernelSource], str],
    *,
    title: str,
    made_of: Sequence[Path],
    include_dirs: Sequence[Path],
    flags: Sequence[str] = (),
) -> Path:
    """The library by which a runtime without PyTorch calls a kernel; built, or from the cache.

    Args:
        kernel: what is called.
        runtime: an identifier, for names of files.
        adapter: gives the source between the runtime and a kernel.
        title: the runtime's name, for messages.
        made_of: the files that decide what `adapter` gives, and those that it includes.
        include_dirs: the folders of the latter.
        flags: compiler flags of the adapter's.

    Raises:
        BuildError: it does not compile, or needs PyTorch.
        MissingDependencyError: something that building needs is not there.
    """
    signature = kernel.signature

    def files() -> dict[str, str]:
        return {**kernel_files(signature), f"{signature.name}_{runtime}.cpp": adapter(kernel)}

    key = generated_key(signature, kernel.strided, *(file.read_bytes() for file in made_of))
    return kernel.build_beside(
        f"{signature.namespace}__{signature.name}__{runtime}",
        Generated(key, files),
        include_dirs=include_dirs,
        flags=flags,
        torch="none",
        what=f"{signature.qualname} ({title})",
    )


def size_text(
    size: Expression, dim: Callable[[str], str], scalar: Callable[[str, int | None], str]
) -> str:
    """A size as a C++ expression, which throws where it overflows or divides by zero.

    Args:
        size: from a shape of the declaration.
        dim: gives the C++ text of a dimension.
        scalar: gives the C++ text of an int argument, or of one element of a sequence.
    """
    return cpp_names.expression(size, dim, scalar)
