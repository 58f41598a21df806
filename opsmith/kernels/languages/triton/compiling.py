"""Compile Triton kernels, also for GPUs that this machine does not have."""

from __future__ import annotations

import re
from dataclasses import dataclass

from opsmith.errors import BuildError, DeclarationError, MissingDependencyError
from opsmith.kernels.languages.triton.kernel import TritonKernel
from opsmith.kernels.languages.triton.variants import Configuration, element_types
from opsmith.kernels.toolchain.nvcc import cuda_architectures
from opsmith.untyped import Untyped

#: One architecture of each generation of GPUs, for which kernels are compiled by default.
_USUAL = (80, 90, 100, 120)
_NUMBERS = {"real": "fp32", "boolean": "u1"}


@dataclass(frozen=True)
class Image:
    """The code of a kernel for one architecture.

    Attributes:
        architecture: the architecture, 90 for sm_90.
        code: the binary that the driver loads.
        shared: the bytes of shared memory that a launch needs.
        further: the number of pointers that Triton passes besides the kernel's own parameters.
    """

    architecture: int
    code: bytes
    name: str
    warps: int
    shared: int
    further: int


def architectures() -> tuple[int, ...]:
    """Return the architectures in ``OPSMITH_CUDA_ARCHS``, else this machine's, else `_USUAL`."""
    listed = [int(found) for found in re.findall(r"\d{2,3}", cuda_architectures())]
    return tuple(sorted(set(listed))) or _USUAL


def compile_for(
    kernel: TritonKernel,
    configuration: Configuration,
    dtype: str | None,
    assumption: tuple[frozenset[str], bool],
    architecture: int,
) -> Image:
    """Compile a kernel.

    Args:
        configuration: its constants.
        assumption: an element of `Configuration.assumptions`.
        architecture: the architecture, 90 for sm_90.

    Raises:
        BuildError: the kernel does not compile; the message has Triton's error.
        DeclarationError: the driver alone cannot launch the kernel.
    """
    import triton
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    function = _compilable(kernel)
    divisible, narrow = assumption
    pointers = dict(element_types(kernel, dtype))
    kinds = {one.name: one.kind for one in configuration.given}
    signature: dict[str, str] = {}
    constants = dict(configuration.constants)
    for taken in kernel.taken:
        if taken.name in pointers:
            signature[taken.name] = f"*{pointers[taken.name]}"
        elif taken.name in kinds:
            integer = "i32" if narrow else "i64"
            signature[taken.name] = _NUMBERS.get(kinds[taken.name], integer)
        else:
            signature[taken.name] = "constexpr"
            if taken.kind == "default":
                constants[taken.name] = next(
                    p.default for p in function.params if p.name == taken.name
                )
    attributes = {
        (position,): [["tt.divisibility", 16]]
        for position, name in enumerate(function.arg_names)
        if name in divisible
    }
    source = ASTSource(function, signature=signature, constexprs=constants, attrs=attributes)
    target = GPUTarget("cuda", architecture, 32)
    what = f"{kernel.what}: the Triton kernel {function.fn.__name__} for sm_{architecture}"
    with_dtype = f"{what}, {dtype}" if dtype else what
    try:
        compiled = triton.compile(source, target=target, options=dict(configuration.options))
    except Exception as error:
        raise BuildError(f"{with_dtype} does not compile: {error}") from error
    facts = compiled.metadata
    needs = _beyond(facts)
    if needs:
        raise DeclarationError(
            f"{what} needs {needs}, which a launch by the driver alone does not provide"
        )
    header = re.search(r"\.entry\b.*?\)", compiled.asm["ptx"], re.DOTALL)
    assert header is not None
    return Image(
        architecture,
        compiled.asm["cubin"],
        facts.name,
        facts.num_warps,
        facts.shared,
        header[0].count(".param") - len(configuration.given),
    )


def _compilable(kernel: TritonKernel) -> Untyped:
    from triton.runtime.jit import JITFunction

    function = kernel.function
    if not isinstance(function, JITFunction):
        raise MissingDependencyError(
            f"{kernel.what}: TRITON_INTERPRET is set, so that Triton compiles nothing; unset it"
        )
    return function


def cache_key(kernel: TritonKernel) -> str:
    """Return a key that changes with Triton, the kernel, or a function that the kernel calls."""
    import triton

    return f"{triton.__version__} {_compilable(kernel).cache_key}"


def _beyond(facts: object) -> str:
    """Return a requirement of the kernel that a plain launch does not fulfil; empty for most."""
    if getattr(facts, "num_ctas", 1) != 1:
        return "clusters of programs (num_ctas)"
    if getattr(facts, "global_scratch_size", 0):
        return "scratch memory"
    if getattr(facts, "launch_cooperative_grid", False):
        return "a cooperative launch"
    if getattr(facts, "tensordesc_meta", None):
        return "tensor descriptors made on the host"
    return ""
