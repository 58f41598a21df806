"""C++ against ``<opsmith/kernel.h>``."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from opsmith.kernels.codegen.argument_struct import require_supported
from opsmith.kernels.codegen.cache_key import generated_key
from opsmith.kernels.libraries.loaded_library import Library
from opsmith.kernels.source import KernelSource, Language
from opsmith.kernels.toolchain import compilers
from opsmith.kernels.toolchain.recipe import LinkedWith, Recipe
from opsmith.kernels.toolchain.torch_paths import torch_paths
from opsmith.kernels.toolchain.units import Generated, Unit
from opsmith.system.files import key_of


class Cpp(Language):
    """The language C++."""

    name = "C++"
    suffixes: tuple[str, ...] = (".cpp", ".cc", ".cxx", ".c")

    def check(self, source: KernelSource) -> None:
        """Refuse a signature that C++ kernels do not support."""
        require_supported(source.signature)

    def require(self, source: KernelSource, *, torch: bool = True) -> None:
        """Require a C++ compiler."""
        del torch
        compilers.find_compiler(source.what)

    def unit(self, source: KernelSource) -> Unit:
        """Return the unit of a source, with the argument headers that it includes."""
        first, *others = source.signatures
        more = f"__and_{len(others)}_more" if others else ""
        return Unit(
            name=f"{first.namespace}__{first.name}{more}",
            source=source.path.resolve(),
            generated=argument_header(source),
            include_dirs=source.include_dirs,
            defines=source.device_row.compile_definitions,
            flags=source.flags,
            explain=explainer(source),
        )

    def beside(self, source: KernelSource) -> LinkedWith:
        """Return what an adapter needs: the device's definitions, and the libraries.

        They are the source's, and the library of PyTorch's that has the current stream.
        """
        paths = torch_paths()
        links = paths.links(source.device_row.torch_libraries[:1]) if paths is not None else ()
        return {
            "include_dirs": (),
            "defines": source.device_row.compile_definitions,
            "link_libraries": (*source.link_libraries, *links),
        }

    def library(self, source: KernelSource) -> Recipe:
        """Return the recipe of the kernel and its adapter for PyTorch."""
        signature = source.signature
        return Recipe(
            f"{signature.namespace}__{signature.name}__{source.device}",
            generated=torch_adapter(source),
            objects=[self.unit(source)],
            what=source.what,
            **self.beside(source),
        )

    def load(self, source: KernelSource, path: Path) -> Library:
        """Return the library of the kernel."""
        return Library(source.signature, source.device, source.what, path)


LANGUAGE = Cpp()


def explainer(source: KernelSource) -> Callable[[str], str]:
    """Return a function that explains a compiler's output; see `kernel_mistakes.explain`."""

    def explain(output: str) -> str:
        from opsmith.kernels.languages import kernel_mistakes

        return kernel_mistakes.explain(source, output)

    return explain


def argument_header(source: KernelSource) -> Generated:
    """Return the headers that a source includes for the operators of its kernels."""
    signatures = source.signatures

    def render() -> dict[str, str]:
        from opsmith.kernels.codegen import render as generate

        return {f"{one.name}.h": generate.argument_header(one) for one in signatures}

    first, *others = map(generated_key, signatures)
    return Generated(key_of([first, *others]) if others else first, render)


def torch_adapter(source: KernelSource, emulated_on: str = "") -> Generated:
    """Return the file that registers a kernel with PyTorch; see `adapters.torch_adapter`."""
    signature, device = source.signature, source.device

    def render() -> dict[str, str]:
        from opsmith.kernels import adapters

        files = adapters.kernel_files(signature)
        adapter = adapters.torch_adapter(signature, device, source.strided, emulated_on)
        return {**files, f"{signature.name}_torch_{device}.cpp": adapter}

    return Generated(generated_key(signature, device, source.strided, emulated_on), render)
