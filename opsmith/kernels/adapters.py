"""Generate adapters, the C++ between a runtime and a kernel, from one frame for all runtimes.

A target calls kernels by means of these functions::

    adapters.source(template, signature, "cpu", ...)    # -> str: the adapter's C++
    adapters.kernel_files(signature)                    # -> {"<op>.h": ..., "<op>_check.h": ...}
    adapters.build(kernel, "jax", adapter, ...)         # -> Path: the kernel and its adapter

The template extends ``anatomy.cpp.j2``, which has the steps of a call: take the arguments, validate
them, allocate the results, run the kernel, report its error. The blocks of the template read this
runtime's arguments and write its results; ``include/opsmith/detail/adapter.h`` describes the C++
types for them. A target's template never depends on an argument's kind: the type of the argument's
member in the operator's ``_raw`` struct selects ``Argument<Raw>``.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from opsmith.kernels.codegen.argument_struct import dlpack_dtype, is_dependent, members_of
from opsmith.kernels.codegen.cache_key import generated_key
from opsmith.kernels.codegen.cpp_names import (
    entry_symbol,
    expression,
    identifier,
    quote,
    register_symbol,
    unregister_symbol,
)
from opsmith.kernels.codegen.render import TEMPLATES, kernel_files, render
from opsmith.kernels.codegen.validation import ValidationCode
from opsmith.kernels.source import KernelSource
from opsmith.kernels.toolchain.devices import dispatch_key, get_device
from opsmith.kernels.toolchain.units import Generated
from opsmith.signature.model import Signature
from opsmith.signature.parameters import Parameter

__all__ = [
    "AdapterResult",
    "Argument",
    "arguments_of",
    "build",
    "expression",
    "identifier",
    "kernel_files",
    "quote",
    "render",
    "results_of",
    "source",
    "torch_adapter",
]


@dataclass(frozen=True)
class Argument:
    """An argument of a call, as all adapters see it.

    Attributes:
        position: its position among the operator's parameters.
        type: the C++ type that selects ``Argument<type>``: the type of its member in the ``_raw``
            struct, but for what the operator writes into: ``DLTensor*`` for a tensor, and
            ``written_tensors`` for a list.
        copied: whether the kernel needs it contiguous, and the runtime may pass other strides.
    """

    parameter: Parameter
    position: int
    type: str
    copied: bool

    @property
    def name(self) -> str:
        """The name in the declaration."""
        return self.parameter.name

    @property
    def member(self) -> str:
        """The member in the ``_raw`` struct."""
        return identifier(self.name)

    @property
    def local(self) -> str:
        """The adapter's variable for the argument."""
        return f"arg_{self.name}"

    @property
    def optional(self) -> bool:
        """Return whether the argument may be ``None``."""
        return self.parameter.optional

    @property
    def written(self) -> bool:
        """Return whether the operator writes into the argument."""
        return self.parameter.mutated


@dataclass(frozen=True)
class AdapterResult:
    """A result of a call, as all adapters see it.

    Attributes:
        position: its position among the results.
        dtype: its ``DLDataType`` as a C++ expression.
        dependent: whether the kernel allocates it, as its sizes depend on data.
    """

    name: str
    position: int
    dtype: str
    dependent: bool

    @property
    def member(self) -> str:
        """The member in the ``_raw`` struct, if there is one."""
        return identifier(self.name)

    @property
    def local(self) -> str:
        """The adapter's variable for the result."""
        return f"result_{self.name}"


def arguments_of(
    signature: Signature, strided: bool | tuple[str, ...] = True
) -> tuple[Argument, ...]:
    """Return the operator's arguments.

    Args:
        strided: the tensors that the kernel accepts with any strides: all, none, or the named
            parameters. Pass all for a runtime whose tensors are always contiguous.
    """
    found = []
    for position, (parameter, member) in enumerate(
        zip(signature.parameters, members_of(signature), strict=False)
    ):
        written = "opsmith::written_tensors" if parameter.is_tensor_list else "opsmith::DLTensor*"
        type_ = written if parameter.mutated else member.raw_type
        as_is = strided is True or (strided is not False and parameter.name in strided)
        tensors = parameter.is_tensor or parameter.is_tensor_list
        found.append(Argument(parameter, position, type_, tensors and not as_is))
    return tuple(found)


def results_of(signature: Signature) -> tuple[AdapterResult, ...]:
    """Return the operator's results."""
    found = []
    for position, result in enumerate(signature.results):
        dtype = dlpack_dtype(signature, result.tensor_type)
        found.append(AdapterResult(result.name, position, dtype, is_dependent(signature, result)))
    return tuple(found)


def shared_by(arguments: Sequence[Argument]) -> list[tuple[Argument, Argument]]:
    """Return pairs of tensor arguments that may share memory, the second of them written.

    If both are written, the pair is returned in one order only.
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
    out: bool = False,
    **more: object,
) -> str:
    """Return the C++ source of an adapter.

    Args:
        template: a template that extends ``anatomy.cpp.j2``.
        strided: see `arguments_of`.
        out: whether calls may give the memory for results, which are then arguments, too.
        more: further names for the template, besides those of `render` and ``arguments``,
            ``shared`` (see `shared_by`), ``results``, ``dependent`` (the results that the kernel
            allocates), ``device``, ``entry`` (the kernel's symbol) and ``values`` (whether values
            have to be scanned).
    """
    results = results_of(signature)
    arguments = arguments_of(signature, strided)
    if out and not signature.no_out:
        # A kernel takes results as it would have allocated them, even if it takes strides.
        arguments += arguments_of(signature.writing, False)[len(arguments) :]
    return render(
        template,
        signature,
        device=device,
        entry=entry_symbol(signature, device),
        alignment=get_device(device, signature.qualname).alignment,
        arguments=arguments,
        shared=shared_by(arguments),
        results=results,
        dependent=[result for result in results if result.dependent],
        values=bool(ValidationCode(signature).values()),
        **more,
    )


def torch_adapter(
    signature: Signature, device: str, strided: bool | tuple[str, ...], emulated_on: str = ""
) -> str:
    """Return the source that registers a kernel with PyTorch.

    Args:
        device: ``"cpu"``, ``"cuda"`` or ``"privateuse1"``.
        strided: see `arguments_of`.
        emulated_on: the device whose tensors an emulated kernel takes; else empty.
    """
    return source(
        TEMPLATES / "torch_adapter.cpp.j2",
        signature,
        device,
        strided=strided,
        out=True,
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
    include: Path,
    include_dirs: Sequence[Path] = (),
    flags: Sequence[str] = (),
) -> Path:
    """Build the library by which a runtime without PyTorch calls a kernel, and return its path.

    Args:
        runtime: an identifier, for names of files.
        adapter: returns the adapter's source for a kernel.
        title: the runtime's name, for messages.
        made_of: the files that decide the result of `adapter`.
        include: the folder of the headers that come with the adapter.
        include_dirs: the folders of other headers, which belong to the runtime.
        flags: compiler flags for the adapter.
    """
    signature = kernel.signature

    def files() -> dict[str, str]:
        return {**kernel_files(signature), f"{signature.name}_{runtime}.cpp": adapter(kernel)}

    decisive = [*made_of, *sorted(include.rglob("*.h"))]
    key = generated_key(signature, kernel.strided, *(file.read_bytes() for file in decisive))
    return kernel.build_beside(
        f"{signature.namespace}__{signature.name}__{runtime}",
        Generated(key, files),
        include_dirs=[include, *include_dirs],
        flags=flags,
        torch="none",
        what=f"{signature.qualname} ({title})",
    )
