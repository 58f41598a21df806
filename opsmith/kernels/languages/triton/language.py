"""The language Triton, compiled ahead of time and launched by generated C++."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from opsmith.kernels.codegen import cpp_names
from opsmith.kernels.codegen.argument_struct import require_supported
from opsmith.kernels.languages.cpp import Cpp, argument_header
from opsmith.kernels.languages.triton import compiling
from opsmith.kernels.languages.triton.kernel import TritonKernel
from opsmith.kernels.languages.triton.missing import require_triton
from opsmith.kernels.languages.triton.sizes import Size, expression_of
from opsmith.kernels.languages.triton.variants import (
    Configuration,
    Passed,
    configurations,
    dtypes_of,
)
from opsmith.kernels.source import KernelSource
from opsmith.kernels.toolchain import compilers
from opsmith.kernels.toolchain.recipe import LinkedWith
from opsmith.kernels.toolchain.torch_paths import require_torch_for
from opsmith.kernels.toolchain.units import Generated, Unit
from opsmith.signature.dtype_variables import parts
from opsmith.system.files import key_of
from opsmith.untyped import Json

_TEMPLATE = Path(__file__).with_name("launch.cpp.j2")


class Triton(Cpp):
    """The language of one Triton kernel, which is a function rather than a file.

    Args:
        served: the sizes given to ``register_sizes``.
    """

    name = "Triton"
    suffixes = (".py",)

    def __init__(self, kernel: TritonKernel, served: Sequence[Mapping[str, int]]) -> None:
        self.kernel, self.served = kernel, tuple(served)

    def check(self, source: KernelSource) -> None:
        """Refuse a signature that C++ kernels do not support."""
        require_supported(source.signature)

    def require(self, source: KernelSource, *, torch: bool = True) -> None:
        """Require a C++ compiler, Triton, and a PyTorch for the device."""
        compilers.find_compiler(source.what)
        require_triton(source.what)
        if torch:
            require_torch_for(source.device_row, source.what, "the kernel is in Triton")

    def unit(self, source: KernelSource) -> Unit:
        """Return the unit of the generated launches, which contain the compiled kernels."""
        found = configurations(self.kernel, self.served)
        archs = compiling.architectures()
        key = key_of([compiling.cache_key(self.kernel), archs, repr(found), _TEMPLATE.read_text()])
        name = f"{source.signature.name}_triton.cpp"
        launches = Generated(key, lambda: {name: render_launch(self.kernel, found, archs)})
        return replace(
            super().unit(source),
            source=name,
            generated=launches.beside(argument_header(source)),
            explain=None,  # opsmith generates this source
        )

    def beside(self, source: KernelSource) -> LinkedWith:
        """Return the options of C++, and the library by which a launch opens the driver."""
        beside = super().beside(source)
        return {**beside, "link_libraries": [*beside["link_libraries"], "dl"]}

    def shipped_with(self, source: KernelSource) -> dict[str, Json]:
        """Return the architectures and the sizes that the kernel is compiled for, and its file."""
        file = Path(self.kernel.function.fn.__code__.co_filename).resolve()
        sizes = [dict(one.sizes) for one in configurations(self.kernel, self.served)]
        return {
            "files": [file] if file != source.path else [],
            "architectures": list(compiling.architectures()),
            "sizes": [one for one in sizes if one],
        }


def render_launch(
    kernel: TritonKernel, found: Sequence[Configuration], archs: Sequence[int]
) -> str:
    """Return the C++ that selects and launches a compiled kernel, with the compiled kernels."""
    from opsmith.kernels.codegen.render import render

    dtypes = dtypes_of(kernel)
    writer = _Writer(kernel)
    shown = []
    for configuration in found:
        entries = [
            {
                "element": ", ".join(_elements(dtype)) or "void",
                "variants": [
                    {
                        "mask": _mask(configuration.given, assumption[0]),
                        "narrow": "true" if assumption[1] else "false",
                        "images": writer.images(configuration, dtype, assumption, archs),
                    }
                    for assumption in configuration.assumptions()
                ],
            }
            for dtype in dtypes
        ]
        shown.append(
            {
                "dtypes": entries,
                "condition": " && ".join(
                    f"a.{cpp_names.identifier(name)} == {size}"
                    for name, size in configuration.sizes.items()
                ),
                "arguments": [writer.argument(given) for given in configuration.given],
                "grid": [writer.number(one) for one in configuration.grid],
            }
        )
    return render(
        _TEMPLATE,
        kernel.signature,
        device=kernel.device,
        generic=dtypes != (None,),
        elements=[_combination(dtype) for dtype in dtypes if dtype is not None],
        codes=writer.codes,
        image_sets=writer.sets,
        configurations=shown,
        refusal=_refusal(found),
    )


def _combination(dtype: str) -> str:
    """Return a choice of dtypes as ``OPSMITH_KERNEL`` takes it."""
    elements = _elements(dtype)
    return elements[0] if len(elements) == 1 else f"opsmith::types<{', '.join(elements)}>"


def _elements(dtype: str | None) -> list[str]:
    """Return the C++ types in a choice of dtypes."""
    return [cpp_names.ELEMENT_TYPES[one] for one in parts(dtype)]


def _mask(given: Sequence[Passed], divisible: frozenset[str]) -> int:
    return sum(1 << position for position, one in enumerate(given) if one.name in divisible)


def _refusal(found: Sequence[Configuration]) -> str:
    """Return the message for sizes that the kernel was not compiled for; empty if any size fits."""
    if not found[0].sizes:
        return ""
    there = " or ".join(
        ", ".join(f"{name}={size}" for name, size in one.sizes.items()) for one in found
    )
    parts = [
        cpp_names.quote(
            f"the Triton kernel was compiled for {there}, the sizes that are served "
            "(register_sizes), and this call has "
        )
    ]
    for position, name in enumerate(found[0].sizes):
        comma = ", " if position else ""
        parts += [cpp_names.quote(f"{comma}{name}="), f"a.{cpp_names.identifier(name)}"]
    return ", ".join(parts)


class _Writer:
    """Writes the parts of the generated file; the same binary code is written once."""

    def __init__(self, kernel: TritonKernel) -> None:
        self._kernel = kernel
        self._positions: dict[bytes, int] = {}
        self.codes: list[str] = []
        self.sets: list[list[dict[str, object]]] = []

    def images(
        self,
        configuration: Configuration,
        dtype: str | None,
        assumption: tuple[frozenset[str], bool],
        archs: Sequence[int],
    ) -> int:
        """Return the index of the images of one variant."""
        found = []
        for arch in archs:
            image = compiling.compile_for(self._kernel, configuration, dtype, assumption, arch)
            found.append(
                {
                    "architecture": arch,
                    "code": self._code(image.code),
                    "name": image.name,
                    "warps": image.warps,
                    "shared": image.shared,
                    "further": image.further,
                }
            )
        if found not in self.sets:
            self.sets.append(found)
        return self.sets.index(found)

    def _code(self, code: bytes) -> int:
        if code not in self._positions:
            self._positions[code] = len(self.codes)
            self.codes.append(",".join(map(str, code)))
        return self._positions[code]

    def argument(self, given: Passed) -> str:
        value = given.value
        if given.kind == "pointer":
            return f"of(a.{cpp_names.identifier(value)}.data())"
        if given.kind == "integer":
            return f"of_integer({self.number(value)})"
        if isinstance(value, str):
            text = f"a.{cpp_names.identifier(value)}"
        elif isinstance(value, bool):
            text = "true" if value else "false"
        else:
            text = cpp_names.floating(value)
        return f"of_{given.kind}({text})"

    def number(self, value: int | Size) -> str:
        """Return an integer as a C++ expression."""

        def dim(name: str) -> str:
            first, dot, rest = name.partition(".")
            return f"a.{cpp_names.identifier(first)}{dot}{rest}"

        def scalar(name: str, index: int | None) -> str:
            return f"a.{cpp_names.identifier(name)}" + ("" if index is None else f"[{index}]")

        return cpp_names.expression(expression_of(value), dim, scalar)
